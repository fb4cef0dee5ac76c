import type { PgBoss } from 'pg-boss';
import { NIL } from 'uuid';
import { inTransaction, type Sql, type Tx } from '../db.ts';
import { announceTasks } from '../events/announce.ts';
import { CHILD_QUEUE } from '../queue.ts';
import { closeTask } from './count-children.ts';
import { failTask } from './fail-task.ts';
import { hasManager } from './manager-queue.ts';

export type FanoutSweepCounts = {
  /** Tallies that said something else than the rows. */
  repaired: number;
  closed: number;
  failed: number;
};

/**
 * The last fuse of fan-out tasks: counts the rows of every open one, puts its tally right, closes it if it is complete, and
 * fails it if nothing has moved for `idleMs` and nothing is left that could.
 *
 * Everything else ends tasks long before this: settles count and close, the aggregator's rounds end what has lost its job. This
 * holds even if somebody has changed rows or jobs by hand. A task is judged by its last activity, never by its age: ten
 * thousand papers may well be in line for a day.
 */
export async function sweepFanoutTasks(
  sql: Sql,
  boss: PgBoss,
  options: { idleMs: number },
): Promise<FanoutSweepCounts> {
  const counts: FanoutSweepCounts = { repaired: 0, closed: 0, failed: 0 };
  let last: string = NIL;
  for (;;) {
    const [next] = await sql<{ id: string }[]>`
      select id
      from asl_schema.extraction_task
      where status = 'processing'
        and mode = 'fanout'
        and id > ${last}::uuid
      order by id
      limit 1`;
    if (next === undefined) return counts;
    const taskId = next.id;
    last = taskId;
    // A transaction each: settles of this task wait while its rows are counted, those of others do not.
    await inTransaction(sql, async (tx) => {
      if (!(await lockOpenTask(tx, taskId))) return;
      const { repaired, complete } = await recount(tx, taskId);
      if (repaired) counts.repaired += 1;
      if (repaired) await announceTasks(tx, [taskId]);
      if (complete) await closeTask(tx, taskId);
      if (complete) counts.closed += 1;
    });
    // And another, which does not hold the tally: failing a task waits for results in other hands, and whoever settles one of
    // those may be waiting for the tally.
    await inTransaction(sql, async (tx) => {
      if (!(await lockOpenTask(tx, taskId)) || !(await isDead(tx, taskId, options.idleMs))) return;
      await failTask(tx, boss, { taskId, reason: 'no_progress' });
      counts.failed += 1;
    });
  }
}

/** Passes by a task that somebody else is at: then it is not dead. */
async function lockOpenTask(tx: Tx, taskId: string): Promise<boolean> {
  const locked = await tx`
    select 1
    from asl_schema.extraction_task
    where id = ${taskId}::uuid
      and status = 'processing'
    for update skip locked`;
  return locked.length > 0;
}

/**
 * Counts the rows, and writes what the tally should have said. With the tally locked no settle can commit: each either is seen
 * by the count or waits for this commit, and counts on from there.
 */
async function recount(tx: Tx, taskId: string): Promise<{ repaired: boolean; complete: boolean }> {
  await tx`
    select 1
    from asl_schema.fanout_tally
    where task_id = ${taskId}::uuid
    for update`;
  const repaired = await tx`
    update asl_schema.fanout_tally y
    set added_count = counted.added,
        expected_count = case when y.expected_count is not null then counted.added end,
        success_count = counted.success,
        failed_count = counted.failed,
        cancelled_count = counted.cancelled
    from (
      select
        count(*)::int as added,
        count(*) filter (where status = 'completed')::int as success,
        count(*) filter (where status = 'error')::int as failed,
        count(*) filter (where status = 'cancelled')::int as cancelled
      from asl_schema.extraction_result
      where task_id = ${taskId}::uuid
    ) counted
    where y.task_id = ${taskId}::uuid
      and (y.added_count, y.success_count, y.failed_count, y.cancelled_count)
        is distinct from (counted.added, counted.success, counted.failed, counted.cancelled)`;
  const [tally] = await tx<{ complete: boolean | null }[]>`
    select success_count + failed_count + cancelled_count = expected_count as complete
    from asl_schema.fanout_tally
    where task_id = ${taskId}::uuid`;
  return { repaired: repaired.count > 0, complete: tally?.complete ?? false };
}

/** Whether nothing of a task has moved for so long, and no job is alive that could move it. */
async function isDead(tx: Tx, taskId: string, idleMs: number): Promise<boolean> {
  const dead = await tx`
    select 1
    from asl_schema.fanout_tally y
    where y.task_id = ${taskId}::uuid
      and y.updated_at < now() - make_interval(secs => ${idleMs / 1000})
      and not exists (
        select 1
        from asl_schema.extraction_result r
        where r.task_id = y.task_id
          and r.updated_at >= now() - make_interval(secs => ${idleMs / 1000})
      )
      and not exists (
        select 1
        from asl_schema.extraction_result r
        join pgboss.job j on j.name = ${CHILD_QUEUE} and j.id = r.job_id and j.state in ('created', 'retry', 'active')
        where r.task_id = y.task_id
          and r.status in ('pending', 'extracting')
      )
      and not ${hasManager(tx, 'y.task_id')}`;
  return dead.length > 0;
}
