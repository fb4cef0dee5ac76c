import type { Sql, Tx } from '../db.ts';
import { announceTasks } from '../events/announce.ts';
import { CHILD_QUEUE } from '../queue.ts';
import { closeWhere } from '../tasks/close-tasks.ts';
import type { CountChange, Counting } from '../tasks/task-mode.ts';

/** What ends results of fan-out tasks must know of them. */
export const CHILDREN: Counting = { queue: CHILD_QUEUE, count: countChildren };

/**
 * Counts results that have just ended, in the transaction that ended them; the last one closes its task.
 *
 * It comes last before the commit, for from here on every other settle of the task waits. The row lock makes the increments
 * atomic, and shows exactly one of them the full count: an `update` that waited for another sees what that one has written.
 */
export async function countChildren(tx: Tx, changes: readonly CountChange[]): Promise<void> {
  for (const { taskId, success, failed, cancelled } of changes) {
    const [tally] = await tx<{ complete: boolean | null }[]>`
      update asl_schema.fanout_tally
      set success_count = success_count + ${success},
          failed_count = failed_count + ${failed},
          cancelled_count = cancelled_count + ${cancelled},
          updated_at = now()
      where task_id = ${taskId}::uuid
      returning success_count + failed_count + cancelled_count = expected_count as complete`;
    if (tally?.complete) await closeTask(tx, taskId);
  }
}

/**
 * Closes a task whose count was just seen to be full.
 *
 * It does not wait for the task's row: a cancel holds that while it waits for results, and one of those may be ours. Whoever
 * holds it closes the task itself, or is a retry; should neither end it, the aggregator's next round does.
 */
export async function closeTask(tx: Tx, taskId: string): Promise<void> {
  const closed = await tx`
    with complete as (
      select id
      from asl_schema.extraction_task
      where id = ${taskId}::uuid
        and status = 'processing'
      for update skip locked
    )
    update asl_schema.extraction_task t
    set status = 'completed',
        -- Not now(), when this transaction began: it may have waited for others that ended results since.
        completed_at = clock_timestamp()
    from complete
    where t.id = complete.id
    returning t.id`;
  if (closed.length > 0) await announceTasks(tx, [taskId]);
}

/** Closes open fan-out tasks whose count is full: those that their last child had to pass by. Answers their ids. */
export async function closeComplete(tx: Sql | Tx, { limit }: { limit: number }): Promise<string[]> {
  const complete = tx`t.mode = 'fanout'
      and exists (
        select 1
        from asl_schema.fanout_tally y
        where y.task_id = t.id
          and y.success_count + y.failed_count + y.cancelled_count = y.expected_count
        -- A look for each open task: the tallies of all the tasks that were ever closed are full too.
        offset 0
      )`;
  return await closeWhere(tx, { complete, limit });
}
