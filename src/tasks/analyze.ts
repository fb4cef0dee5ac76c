import type { PgBoss } from 'pg-boss';
import type { Sql } from '../db.ts';
import type { ResultQueue } from '../queue.ts';

/** From this many rows on, statistics from before the insert mislead the planner: a fetch took 395 ms instead of 2. */
const FROM_ROWS = 1000;

let running = false;

/**
 * Refreshes the statistics after a large insert, beside the answer and not before it. Autovacuum would come to it too, but
 * only within a minute. A courtesy: if it fails, nothing is lost but that minute. One at a time in a process, and none that
 * waits for another's: a burst of large tasks must not take the pool.
 */
export function analyzeAfterInsert(sql: Sql, boss: PgBoss, name: ResultQueue, rows: number): void {
  if (rows < FROM_ROWS || running) return;
  running = true;
  const run = async (): Promise<void> => {
    await sql`analyze (skip_locked) asl_schema.extraction_result`;
    const queue = await boss.getQueue(name);
    if (queue !== null) await sql`analyze (skip_locked) ${sql(`pgboss.${queue.table}`)}`;
  };
  run()
    .catch(() => {})
    .finally(() => {
      running = false;
    });
}
