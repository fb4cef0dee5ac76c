import { setTimeout as sleep } from 'node:timers/promises';
import { isWorthAnotherTry, type Sql } from '../db.ts';
import { ExtractionError } from '../errors.ts';
import { describeError, type Logger } from '../log.ts';
import { type CallOutcome, toOutcome, toThrown } from './outcome.ts';
import { releasePermit } from './permit-store.ts';
import type { Stage } from './stage.ts';
import { createTicketBook, type HeldTicket } from './ticket-book.ts';

export type PermitOptions = {
  taskId: string;
  /** Gives the place in the queue up, and tells the call to stop. */
  signal: AbortSignal;
  /** Every wait for a permit goes through it, so that it can stop a clock meanwhile. */
  whileWaiting: <W>(wait: Promise<W>) => Promise<W>;
};

/** A call of a stage. It reports the tokens it has used, if the stage has a budget of them. */
export type PermitCall<T> = (signal: AbortSignal, reportTokens: (tokens: number) => void) => Promise<T>;

export type Permits = {
  /**
   * Waits until the stage lets it in, makes the call, and tells the stage how it went.
   *
   * The permit is held until the call has ended, also when its signal has fired: it is the call that uses the stage. The
   * signal fires for the caller's own, and when the permit was lost because it could not be renewed in time.
   *
   * @throws what the call throws; a wait that a server asks for has the class `defer`, and so has the loss of a permit
   * @throws the signal's reason if it fires before the call has begun
   * @throws a database error if the place in the queue could not be taken
   */
  withPermit<T>(stage: Stage, options: PermitOptions, call: PermitCall<T>): Promise<T>;
  /** Lets nobody in any more, tells the running calls to stop, and gives back what this process holds. */
  close(): Promise<void>;
};

export type PermitsDeps = {
  sql: Sql;
  /** Names this process, for people who look at the tickets. */
  holder: string;
  log: Logger;
  /** A ticket that is not renewed for so long is void. */
  ttlMs?: number;
  renewIntervalMs?: number;
  /** How soon a process finds a grant of which it was not told, or a stage that may let someone in again. */
  pollIntervalMs?: number;
};

const RELEASE_TRIES = 4;
/** The longest that a call's answer waits for its permit to be given back; that goes on by itself then. */
const RELEASE_PATIENCE_MS = 2_000;
/** How long a stop waits for the calls that it told to end, and then for the database. */
const CLOSE_PATIENCE_MS = 2_000;

/** The permits of this process: the same stages, and the same limits, as those of all others on the same database. */
export function createPermits(deps: PermitsDeps): Permits {
  const { sql, log } = deps;
  const book = createTicketBook({ ttlMs: 15_000, renewIntervalMs: 5_000, pollIntervalMs: 500, ...deps });
  const releasing = new Set<Promise<void>>();
  let closed = false;

  /** Never throws: a ticket that can't be given back expires. The answer of a call is not lost for it. */
  const release = (ticket: HeldTicket, outcome: CallOutcome, tokens: number): Promise<void> => {
    book.remove(ticket);
    const done = giveBack(ticket, outcome, tokens)
      .catch((error: unknown) =>
        log.warn('permit left to expire', { stage: ticket.stage, error: describeError(error) }),
      )
      .finally(() => releasing.delete(done));
    releasing.add(done);
    return atMost(RELEASE_PATIENCE_MS, done);
  };

  const giveBack = async (ticket: HeldTicket, outcome: CallOutcome, tokens: number): Promise<void> => {
    // A place that is still being taken can't be given back yet.
    await ticket.requested;
    for (let tries = 1; ; tries++) {
      try {
        return book.admit(await releasePermit(sql, { ...ticket, outcome, tokens }));
      } catch (error) {
        if (tries === RELEASE_TRIES || !isWorthAnotherTry(error)) throw error;
        await sleep(100 * 2 ** tries);
      }
    }
  };

  return {
    async withPermit(stage, { taskId, signal, whileWaiting }, call) {
      signal.throwIfAborted();
      if (closed) throw closing();
      const ticket = book.request(stage, taskId);
      let outcome: CallOutcome = { kind: 'none' };
      let tokens = 0;
      let inside = false;
      try {
        await whileWaiting(orAborted(ticket.granted, signal));
        signal.throwIfAborted();
        ticket.lost.throwIfAborted();
        inside = true;
        const answer = await call(AbortSignal.any([signal, ticket.lost]), (used) => {
          tokens += Math.max(0, Math.round(used) || 0);
        });
        outcome = { kind: 'success' };
        return answer;
      } catch (error) {
        // What ends because it was told to says nothing about the stage.
        if (inside && !signal.aborted && !ticket.lost.aborted) outcome = toOutcome(error);
        if (outcome.kind === 'pause') log.warn('stage paused', { stage, code: outcome.code, pauseMs: outcome.pauseMs });
        throw ticket.lost.aborted && !signal.aborted ? ticket.lost.reason : toThrown(error);
      } finally {
        await whileWaiting(release(ticket, outcome, tokens));
      }
    },

    async close() {
      if (closed) return;
      closed = true;
      book.loseAll(closing());
      await atMost(CLOSE_PATIENCE_MS, book.empty());
      // Calls that did not heed the signal end with this process.
      for (const ticket of book.tickets()) void release(ticket, { kind: 'none' }, 0);
      // A database that is away must not hold up a stop: tickets that it did not take back expire.
      await atMost(CLOSE_PATIENCE_MS, Promise.all([...releasing, book.close()]));
    },
  };
}

function closing(): ExtractionError {
  return new ExtractionError('defer', 'worker_stopped', 'The process is about to end.', { retryAfterMs: 0 });
}

function orAborted<T>(wait: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    wait.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

async function atMost(ms: number, work: Promise<unknown>): Promise<void> {
  const timer = new AbortController();
  await Promise.race([work, sleep(ms, undefined, { signal: timer.signal }).catch(() => {})]);
  timer.abort();
}
