import type { Sql, Tx } from './db.ts';

/**
 * Courtesies between processes: a word that there is something to do, without saying what. Losing one costs a poll interval,
 * nothing else, so nobody waits for them and nothing depends on them.
 *
 * `jobs`: a task was created or a result is due again; workers look into the queue.
 * `settled`: results have ended; the aggregator looks whether a task has.
 * `stopped`: a task was cancelled or stopped; workers look whether they still work for it.
 * `permits`: somebody is let into a stage; here alone the word says who, so that the others need not look.
 */
export type WakeChannel = 'asl_jobs' | 'asl_settled' | 'asl_stopped' | 'asl_permits';

/** Tells every listening process; inside a transaction, at its commit. */
export async function notifyWake(sql: Sql | Tx, channel: WakeChannel): Promise<void> {
  await sql`select pg_notify(${channel}, '')`;
}

/**
 * Listens on a connection of its own that comes back by itself; a reconnect counts as a word, since one may have been lost.
 * It ends with the pool.
 */
export async function listenWake(sql: Sql, channel: WakeChannel, wake: () => void): Promise<void> {
  await sql.listen(channel, wake, wake);
}

/** Calls `action` at most once each `ms`, at once for the first of a burst and once more after its last. */
export function coalesce(ms: number, action: () => void): () => void {
  let again = false;
  let timer: NodeJS.Timeout | undefined;
  const fire = (): void => {
    again = false;
    timer = setTimeout(() => {
      timer = undefined;
      if (again) fire();
    }, ms).unref();
    action();
  };
  return () => {
    if (timer === undefined) fire();
    else again = true;
  };
}
