import type { PgBoss } from 'pg-boss';
import type { Tx } from '../db.ts';
import { failTask } from './fail-task.ts';
import { hasManager } from './manager-queue.ts';

/**
 * Fails open tasks whose results are not all made, and never will be: the manager's job failed for good, was cancelled or was
 * deleted. Answers how many.
 *
 * The job is inserted with the task and completed with the last of its results, so one snapshot shows both in step. A user who
 * retries the task gives it another manager.
 */
export async function sweepLostManagers(tx: Tx, boss: PgBoss, options: { limit: number }): Promise<number> {
  const found = await lost(tx, tx``, options.limit);
  if (found.length === 0) return 0;
  // Looked at again after the locks: a cancel and a retry may have given a task another manager in between.
  const still = await lost(tx, tx`and t.id = any(${found}::uuid[])`, options.limit);
  for (const taskId of still) await failTask(tx, boss, { taskId, reason: 'expansion_failed' });
  return still.length;
}

/** Rides on the index of open tasks, and on the keys of what it looks up for each. */
async function lost(tx: Tx, only: ReturnType<Tx>, limit: number): Promise<string[]> {
  const tasks = await tx<{ id: string }[]>`
    select t.id
    from asl_schema.extraction_task t
    where t.status = 'processing'
      and t.mode = 'fanout'
      and exists (
        select 1
        from asl_schema.fanout_tally y
        where y.task_id = t.id
          and y.expected_count is null
        -- A look for each open task, and no walk through the tallies of those that have ended.
        offset 0
      )
      and not ${hasManager(tx, 't.id')}
      ${only}
    order by t.id
    limit ${limit}
    for update of t skip locked`;
  return tasks.map((task) => task.id);
}
