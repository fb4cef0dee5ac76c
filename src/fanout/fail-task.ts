import type { PgBoss } from 'pg-boss';
import { inTransaction, type Sql, type Tx } from '../db.ts';
import { announceTasks } from '../events/announce.ts';
import type { HeldJob } from '../queue.ts';
import { endResults } from '../tasks/end-results.ts';
import type { StatusReason } from '../tasks/task.ts';
import { notifyWake } from '../wake.ts';
import { CHILDREN } from './count-children.ts';
import { completeManagerJob } from './manager-queue.ts';

/**
 * Fails an open fan-out task whose row the caller has locked, and cancels what it leaves behind: none of its children runs on
 * and counts into a closed task.
 */
export async function failTask(
  tx: Tx,
  boss: PgBoss,
  { taskId, reason }: { taskId: string; reason: StatusReason },
): Promise<void> {
  // First: the count of the results that are cancelled below must not close the task as completed.
  await tx`
    update asl_schema.extraction_task
    set status = 'failed',
        status_reason = ${reason},
        completed_at = clock_timestamp()
    where id = ${taskId}::uuid
      and status = 'processing'`;
  await endResults(tx, boss, { mode: CHILDREN, taskIds: [taskId], ending: { status: 'cancelled' } });
  await notifyWake(tx, 'asl_stopped');
  await announceTasks(tx, [taskId]);
}

/**
 * Fails a task whose results can't be made, and ends the manager's delivery with it; not one that was closed meanwhile, that
 * another manager is at, or of which another has made them all.
 */
export async function giveUpExpansion(
  sql: Sql,
  boss: PgBoss,
  { taskId, job }: { taskId: string; job: HeldJob },
): Promise<void> {
  await inTransaction(sql, async (tx) => {
    await tx`
      select 1
      from asl_schema.extraction_task
      where id = ${taskId}::uuid
      for update`;
    if (!(await completeManagerJob(boss, tx, job))) return;
    // A statement of its own, which sees what the one above has waited for.
    const unfinished = await tx`
      select 1
      from asl_schema.extraction_task t
      join asl_schema.fanout_tally y on y.task_id = t.id
      where t.id = ${taskId}::uuid
        and t.status = 'processing'
        and y.expected_count is null`;
    if (unfinished.length > 0) await failTask(tx, boss, { taskId, reason: 'expansion_failed' });
  });
}
