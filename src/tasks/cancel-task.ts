import type { PgBoss } from 'pg-boss';
import { inTransaction, type Sql } from '../db.ts';
import { announceTasks } from '../events/announce.ts';
import { MODES } from '../modes.ts';
import { notifyWake } from '../wake.ts';
import { endResults } from './end-results.ts';
import type { TaskModeName, TaskStatus } from './task.ts';

/**
 * - `cancelled`  the task is cancelled: by this call, which ended so many results, or by an earlier one, which left 0
 * - `closed`     it has ended otherwise, and stays as it is
 */
export type CancelOutcome =
  | { outcome: 'cancelled'; ended: number }
  | { outcome: 'closed'; status: TaskStatus }
  | { outcome: 'unknown' };

/**
 * Cancels an open task, for good and at once: when this returns, its counts are final. Results that have finished stay, all
 * others become `cancelled`. A second cancel changes nothing and says the same.
 *
 * The task's row is locked first, as retry and close do, so of a cancel, a retry and a close at the same moment one wins.
 */
export async function cancelTask(sql: Sql, boss: PgBoss, taskId: string): Promise<CancelOutcome> {
  return await inTransaction(sql, async (tx) => {
    const [task] = await tx<{ status: TaskStatus; mode: TaskModeName }[]>`
      select status, mode
      from asl_schema.extraction_task
      where id = ${taskId}::uuid
      for update`;
    if (task === undefined) return { outcome: 'unknown' };
    if (task.status === 'cancelled') return { outcome: 'cancelled', ended: 0 };
    if (task.status !== 'processing') return { outcome: 'closed', status: task.status };
    // First: in fan-out mode the count of what is ended below would close the task as completed.
    await tx`
      update asl_schema.extraction_task
      set status = 'cancelled',
          status_reason = 'cancelled_by_user',
          completed_at = clock_timestamp()
      where id = ${taskId}::uuid`;
    const ended = await endResults(tx, boss, {
      mode: MODES[task.mode],
      taskIds: [taskId],
      ending: { status: 'cancelled' },
    });
    await notifyWake(tx, 'asl_stopped');
    await announceTasks(tx, [taskId]);
    return { outcome: 'cancelled', ended };
  });
}
