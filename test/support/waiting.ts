import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from '../../src/db.ts';

/**
 * Waits for a condition by asking, not by hoping: fails when it does not come true in time.
 *
 * @param what what is waited for, for the message
 */
export async function until<T>(
  what: string,
  check: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs = 10_000,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const value = await check();
    if (value !== undefined && value !== false) return value;
    if (Date.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain for: ${what}`);
    await sleep(10);
  }
}

/** Waits until another connection of this database waits for a lock in a statement that holds `text`. */
export async function untilBlocked(sql: Sql, text: string, connections = 1): Promise<void> {
  await until(`${connections} blocked: ${text}`, async () => {
    const [row] = await sql<{ blocked: number }[]>`
      select count(*)::int as blocked
      from pg_stat_activity
      where datname = current_database()
        and wait_event_type = 'Lock'
        and query like ${`%${text}%`}`;
    return row !== undefined && row.blocked >= connections;
  });
}
