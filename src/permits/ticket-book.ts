import { v7 as uuidv7 } from 'uuid';
import type { Sql } from '../db.ts';
import { ExtractionError } from '../errors.ts';
import { describeError, type Logger } from '../log.ts';
import { startLoop } from '../loop.ts';
import type { WakeChannel } from '../wake.ts';
import { fillStage, findStagesToFill } from './grant-permits.ts';
import { findGranted, renewPermits, requestPermit, type Ticket } from './permit-store.ts';
import type { Stage } from './stage.ts';

/** A ticket of this process, waiting or granted. */
export type HeldTicket = Ticket & {
  taskId: string;
  /** Settles when the place in the queue was taken, or could not be; never rejects. */
  requested: Promise<void>;
  /** Resolves at the grant; rejects if the place could not be taken. */
  granted: Promise<void>;
  /** Fires when the ticket is no longer good. */
  lost: AbortSignal;
};

type Entry = HeldTicket & {
  state: 'asking' | 'waiting' | 'granted';
  /** On the monotonic clock, counted from before the statement that put the expiry off: never later than the database's. */
  goodUntilMs: number;
  expiry: NodeJS.Timeout | undefined;
  admit: () => void;
  refuse: (error: unknown) => void;
  loss: AbortController;
};

export type TicketBookOptions = {
  sql: Sql;
  holder: string;
  log: Logger;
  ttlMs: number;
  renewIntervalMs: number;
  pollIntervalMs: number;
};

export type TicketBook = {
  request(stage: Stage, taskId: string): HeldTicket;
  /** Tickets were granted, of this process or of others. */
  admit(ticketIds: readonly string[]): void;
  remove(ticket: HeldTicket): void;
  tickets(): HeldTicket[];
  /** Tells everyone who holds a ticket, or waits with one, to stop. */
  loseAll(reason: ExtractionError): void;
  /** Resolves once every ticket was removed. */
  empty(): Promise<void>;
  close(): Promise<void>;
};

/**
 * The tickets of one process: renews them all with one statement, hears of grants, and tells the holder of one that is no
 * longer good. No connection is held while somebody waits.
 */
export function createTicketBook(options: TicketBookOptions): TicketBook {
  const { sql, holder, log, ttlMs } = options;
  const entries = new Map<string, Entry>();
  let onEmpty: (() => void) | undefined;

  const ask = async (entry: Entry): Promise<void> => {
    entry.state = 'asking';
    // Before the statement is sent: the word of a grant may arrive before its answer.
    putOff(entry, performance.now());
    try {
      const { ticketId, stage, taskId } = entry;
      const granted = await requestPermit(sql, { ticketId, stage, taskId, holder, ttlMs });
      if (entry.state === 'asking') entry.state = 'waiting';
      admit(granted);
    } catch (error) {
      entry.refuse(error);
    }
  };

  const admit = (ticketIds: readonly string[]): void => {
    for (const id of ticketIds) {
      const entry = entries.get(id);
      if (entry === undefined || entry.state === 'granted') continue;
      // A word that comes too late is no leave to go in: the next renewal finds out whether the ticket is good.
      if (performance.now() >= stopAt(entry)) continue;
      entry.state = 'granted';
      putOff(entry, entry.goodUntilMs - ttlMs);
      entry.admit();
    }
  };

  /** Before the ticket is void: whoever holds it needs a moment to stop. */
  const stopAt = (entry: Entry): number => entry.goodUntilMs - ttlMs / 10;

  const putOff = (entry: Entry, sentAtMs: number): void => {
    entry.goodUntilMs = sentAtMs + ttlMs;
    clearTimeout(entry.expiry);
    if (entry.state !== 'granted') return;
    // The database need not be reached to know that it was not: a holder that is cut off stops by itself.
    entry.expiry = setTimeout(() => lose(entry, permitLost()), stopAt(entry) - performance.now());
  };

  const lose = (entry: Entry, reason: ExtractionError): void => {
    remove(entry);
    entry.loss.abort(reason);
    entry.refuse(reason);
    if (reason.code === 'permit_lost') log.warn('permit lost', { stage: entry.stage, taskId: entry.taskId });
  };

  const remove = (ticket: HeldTicket): void => {
    clearTimeout(entries.get(ticket.ticketId)?.expiry);
    entries.delete(ticket.ticketId);
    if (entries.size === 0) onEmpty?.();
  };

  /** One that failed leaves little time: it is tried again soon. */
  const renewSoon = async (): Promise<number | undefined> => {
    try {
      await renew();
    } catch (error) {
      log.warn('permits not renewed, trying again', { error: describeError(error) });
      return Math.min(options.pollIntervalMs, options.renewIntervalMs);
    }
  };

  const renew = async (): Promise<void> => {
    const before = [...entries.values()].filter((entry) => entry.state !== 'asking');
    if (before.length === 0) return;
    const inside = new Set(before.filter((entry) => entry.state === 'granted'));
    const sentAtMs = performance.now();
    const states = await renewPermits(sql, { ticketIds: before.map(({ ticketId }) => ticketId), ttlMs });
    for (const entry of before) {
      if (!entries.has(entry.ticketId)) continue;
      const state = states.get(entry.ticketId);
      if (state !== undefined) putOff(entry, sentAtMs);
      if (state === 'granted') admit([entry.ticketId]);
      // Granted before, and not any more: it has expired, or the database has come back from an older state.
      else if (inside.has(entry)) lose(entry, permitLost());
      // Only the place in the queue is lost.
      else if (state === undefined && entry.state === 'waiting') entry.requested = ask(entry);
    }
  };

  const look = async (): Promise<undefined> => {
    const waiting = [...entries.values()].filter((entry) => entry.state === 'waiting');
    if (waiting.length === 0) return;
    const ids = waiting.map(({ ticketId }) => ticketId);
    admit(await findGranted(sql, ids));
    const stages = [...new Set(waiting.map(({ stage }) => stage))];
    for (const stage of await findStagesToFill(sql, stages)) admit(await fillStage(sql, stage));
  };

  // Apart, so that a stage that somebody has locked holds up no renewal.
  const { renewIntervalMs, pollIntervalMs } = options;
  const renewing = startLoop({ name: 'renewal of permits', intervalMs: renewIntervalMs, step: renewSoon, log });
  const looking = startLoop({ name: 'look for permits', intervalMs: pollIntervalMs, step: look, log });
  const channel: WakeChannel = 'asl_permits';
  // A new connection may have missed a word.
  const listening = sql.listen(channel, (ticketId) => admit([ticketId]), looking.wake);
  listening.catch((error: unknown) => log.warn('not listening for permits', { error: describeError(error) }));

  return {
    request(stage, taskId) {
      const { promise: granted, resolve: admitIt, reject: refuse } = Promise.withResolvers<void>();
      // Who waits hears of it; nobody may be waiting any more.
      granted.catch(() => {});
      const loss = new AbortController();
      const entry: Entry = {
        ...{ ticketId: uuidv7(), stage, taskId, granted, refuse, loss, admit: admitIt, lost: loss.signal },
        ...{ state: 'asking', goodUntilMs: 0, expiry: undefined, requested: Promise.resolve() },
      };
      entries.set(entry.ticketId, entry);
      entry.requested = ask(entry);
      return entry;
    },
    admit,
    remove,
    tickets: () => [...entries.values()],
    loseAll(reason) {
      for (const entry of [...entries.values()]) {
        entry.loss.abort(reason);
        entry.refuse(reason);
      }
    },
    empty: () =>
      new Promise((resolve) => {
        onEmpty = resolve;
        if (entries.size === 0) resolve();
      }),
    async close() {
      await Promise.all([renewing.stop(), looking.stop()]);
      await listening.then(({ unlisten }) => unlisten()).catch(() => {});
    },
  };
}

function permitLost(): ExtractionError {
  return new ExtractionError('defer', 'permit_lost', 'The permit could not be renewed in time.', {
    retryAfterMs: 1000,
  });
}
