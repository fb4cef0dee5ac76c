import { setTimeout as sleep } from 'node:timers/promises';
import { isWorthAnotherTry, type Sql } from '../db.ts';
import { describeError, type Logger } from '../log.ts';
import { sendPayloads } from './announce.ts';
import { createBacklog } from './backlog.ts';
import { packEvents } from './payload.ts';
import type { TaskEvent } from './task-event.ts';

export type Publisher = {
  /** Sends an event soon. Never throws and never waits. */
  publish(event: TaskEvent): void;
  /** Sends what is still there, for two seconds at most; later events go nowhere. */
  close(): Promise<void>;
};

/** Of one statement, in bytes: some hundred events. */
const MAX_BATCH_BYTES = 128 * 1024;
/** How soon a database that was away is asked again. */
const RETRY_MS = 500;
const CLOSE_WITHIN_MS = 2000;

/**
 * Tells the other processes what workers do: gathers events and sends them together, one statement at a time, and not more
 * often than `intervalMs` allows.
 *
 * On connections of the pool, and never inside a transaction of somebody else: NOTIFY takes a lock of the whole database at
 * commit, and so settles that notified would have to commit one after the other, each waiting for the other's disk.
 *
 * With the database slow or away the backlog is bounded (see backlog.ts). Losing an event loses nothing that polling would
 * not show.
 */
export function createPublisher(options: { sql: Sql; log: Logger; intervalMs?: number }): Publisher {
  const { sql, log, intervalMs = 100 } = options;
  const backlog = createBacklog();
  let closed = false;
  let failing = false;
  let running: Promise<void> | undefined;

  const run = async (): Promise<void> => {
    // What is published in the same turn goes along.
    await sleep(0);
    while (!backlog.isEmpty()) {
      const sent = await send(packEvents(backlog.take(MAX_BATCH_BYTES)));
      if (!sent && closed) return;
      // At the end there is no time left to be polite.
      if (!closed) await sleep(intervalMs, undefined, { ref: false });
    }
  };

  /** The same payloads again until they are sent: should the answer alone have been lost, their ids tell that they are. */
  const send = async (payloads: string[]): Promise<boolean> => {
    for (;;) {
      try {
        await sendPayloads(sql, payloads);
        failing = false;
        return true;
      } catch (error) {
        if (!failing) log.warn('events wait: they could not be sent', { error: describeError(error) });
        failing = true;
        // Refused for what they are, or the queue of the server is full: these would stand in the way for ever.
        if (closed || !isWorthAnotherTry(error)) return false;
        await sleep(RETRY_MS, undefined, { ref: false });
      }
    }
  };

  const start = (): void => {
    if (running !== undefined || closed) return;
    running = run()
      .catch((error: unknown) => log.error('events could not be sent', { error: describeError(error) }))
      .finally(() => {
        running = undefined;
        if (!backlog.isEmpty()) start();
      });
  };

  return {
    publish(event) {
      if (closed) return;
      try {
        backlog.add(event);
        start();
      } catch (error) {
        log.error('an event could not be written', { error: describeError(error) });
      }
    },
    async close() {
      closed = true;
      await Promise.race([running, sleep(CLOSE_WITHIN_MS, undefined, { ref: false })]);
    },
  };
}
