import type { Sql } from '../db.ts';
import type { Logger } from '../log.ts';
import { type Loop, startLoop } from '../loop.ts';
import { deleteExpiredTasks } from '../tasks/delete-task.ts';

const INTERVAL_MS = 10 * 60_000;
/** Results that one transaction deletes: well under a second. */
const CHUNK = 10_000;

/** Deletes closed tasks that have outlived the retention, a chunk a round and without a pause while there are more. */
export function startRetention(deps: { sql: Sql; retentionMs: number; log: Logger }): Loop {
  const { sql, retentionMs, log } = deps;
  const step = async (): Promise<number> => {
    const deleted = await deleteExpiredTasks(sql, { retentionMs, maxResults: CHUNK });
    if (deleted === 0) return INTERVAL_MS;
    log.info('expired tasks deleted', { deleted });
    return 0;
  };
  return startLoop({ name: 'retention', intervalMs: INTERVAL_MS, step, log });
}
