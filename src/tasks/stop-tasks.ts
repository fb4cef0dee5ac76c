import type { PgBoss } from 'pg-boss';
import type { Tx } from '../db.ts';
import { announceTasks } from '../events/announce.ts';
import { notifyWake } from '../wake.ts';
import { endResults } from './end-results.ts';
import type { TaskMode } from './task-mode.ts';

type StopOptions = { mode: TaskMode; limit: number };

/**
 * Ends what is unfinished in open tasks whose deadline has passed, as errors that say so. The tasks are complete then, and
 * the close that follows in the same round ends them. Returns how many tasks it stopped. Rides on the index of deadlines.
 */
export async function stopOverdueTasks(tx: Tx, boss: PgBoss, options: StopOptions): Promise<number> {
  const overdue = await tx<{ id: string }[]>`
    with overdue as (
      select t.id
      from asl_schema.extraction_task t
      where t.status = 'processing'
        and t.mode = ${options.mode.name}
        and t.deadline_at <= now()
        -- One whose results have all ended in time is only waiting for its close.
        and exists (
          select 1
          from asl_schema.extraction_result r
          where r.task_id = t.id
            and r.status in ('pending', 'extracting')
        )
      order by t.deadline_at
      limit ${options.limit}
      for update of t skip locked
    )
    update asl_schema.extraction_task t
    set status_reason = 'deadline_exceeded'
    from overdue
    where t.id = overdue.id
    returning t.id`;
  const message = 'The deadline of the task passed before this result was finished.';
  const taskIds = overdue.map((task) => task.id);
  const ended = await endResults(tx, boss, {
    mode: options.mode,
    taskIds,
    ending: { status: 'error', code: 'deadline_exceeded', message },
  });
  if (ended > 0) await notifyWake(tx, 'asl_stopped');
  await announceTasks(tx, taskIds);
  return overdue.length;
}

/**
 * Cancels the rest of open tasks in which more results have failed than their request allows, so that they stop spending.
 * Returns how many tasks it stopped.
 *
 * Counts the errors of tasks that have a limit, and of no other; a task has hardly more errors than its limit, since
 * crossing it is what ends it. Rides on the index of limits, and on (task_id, status) for the count.
 */
export async function stopFailingTasks(tx: Tx, boss: PgBoss, options: StopOptions): Promise<number> {
  const failing = await tx<{ id: string }[]>`
    select t.id
    from asl_schema.extraction_task t
    where t.status = 'processing'
      and t.mode = ${options.mode.name}
      and t.failure_limit is not null
      -- One that its deadline has just stopped has ended by that: the errors which this made are no failures of papers.
      and t.status_reason is null
      and t.failure_limit < (
        select count(*)
        from asl_schema.extraction_result r
        where r.task_id = t.id
          and r.status = 'error'
      )
    order by t.id
    limit ${options.limit}
    for update of t skip locked`;
  if (failing.length === 0) return 0;
  // Looked at again after the locks: a retry may have put the failed results back in between.
  const stopped = await tx<{ id: string }[]>`
    update asl_schema.extraction_task t
    set status = 'cancelled',
        status_reason = 'failure_threshold',
        completed_at = now()
    where t.id = any(${failing.map((task) => task.id)}::uuid[])
      and t.status = 'processing'
      and t.status_reason is null
      and t.failure_limit < (
        select count(*)
        from asl_schema.extraction_result r
        where r.task_id = t.id
          and r.status = 'error'
      )
    returning t.id`;
  const taskIds = stopped.map((task) => task.id);
  const ended = await endResults(tx, boss, { mode: options.mode, taskIds, ending: { status: 'cancelled' } });
  if (ended > 0) await notifyWake(tx, 'asl_stopped');
  await announceTasks(tx, taskIds);
  return stopped.length;
}
