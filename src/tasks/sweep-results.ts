import type { Sql, Tx } from '../db.ts';
import { announceResults } from '../events/announce.ts';
import { countChanges } from './count-changes.ts';
import { SCATTER } from './scatter.ts';
import type { TaskMode } from './task-mode.ts';

/**
 * The last fuse: `extracting` rows that nobody has touched for so long become errors. Heartbeats and expiry come long before
 * it; it holds even if the queue itself is broken.
 *
 * The age is that of `updated_at`, the last sign of life, never that of the task: waiting in a long queue is no fault. Only
 * open tasks are looked at, and in each only its `extracting` rows: (task_id, status) makes that as many rows as there are
 * slots.
 */
export async function sweepStaleResults(
  tx: Sql | Tx,
  options: { mode?: TaskMode; staleAfterMs: number; limit: number },
): Promise<number> {
  const { mode = SCATTER } = options;
  const swept = await tx<Swept[]>`
    with stale as (
      select r.task_id, r.id, r.attempt
      from asl_schema.extraction_task t
      join asl_schema.extraction_result r on r.task_id = t.id
      where t.status = 'processing'
        and t.mode = ${mode.name}
        and r.status = 'extracting'
        and r.updated_at < now() - make_interval(secs => ${options.staleAfterMs / 1000})
      order by r.task_id, r.id
      limit ${options.limit}
      for update of r skip locked
    ),
    ${endAttempts(tx, 'stale')}
    update asl_schema.extraction_result r
    set status = 'error',
        error_code = 'extraction_stalled',
        error_message = ${`No sign of life for ${options.staleAfterMs / 1000} s; its worker has probably crashed.`},
        failed_attempts = r.failed_attempts + 1,
        delivery = null,
        finished_at = now(),
        updated_at = now()
    from stale
    where r.task_id = stale.task_id and r.id = stale.id
    returning r.task_id as "taskId", r.id as "resultId", r.attempt, r.error_code as code`;
  await tellSwept(tx, mode, swept);
  return swept.length;
}

/**
 * Results whose job is gone, whether it failed for good, was cancelled, was deleted by hand or aged out, become errors: no
 * delivery will ever come for them.
 *
 * Every claim, settle and retry changes the row and its job in one transaction, so one snapshot shows them in step, and a
 * row without a live job is lost for certain. A row that changed after the snapshot carries another attempt, status or
 * job_id by the time it is locked, and is left alone.
 *
 * `extracting` rows are few and examined in every round. `pending` rows may be a million: a round examines the next `limit`
 * of them in key order, from where the last one stopped, so each is seen in bounded time and a round stays short.
 */
export async function sweepLostJobs(
  tx: Sql | Tx,
  options: { mode?: TaskMode; limit: number; sweeper: string },
): Promise<number> {
  const { mode = SCATTER } = options;
  const lost = await tx<Swept[]>`
    with page as materialized (
      select t.id as task_id, waiting.id, waiting.status, waiting.attempt, waiting.job_id
      from asl_schema.extraction_task t
      cross join asl_schema.aggregator_tick tick
      cross join lateral (
        select r.id, r.status, r.attempt, r.job_id
        from asl_schema.extraction_result r
        where r.task_id = t.id
          -- One bound and no "or", so that the task of the cursor is entered at it too, and not walked up to it.
          and r.id > case when t.id = tick.cursor_task_id then tick.cursor_result_id else ${NIL}::uuid end
        order by r.id
        limit ${options.limit}
      ) waiting
      where tick.mode = ${mode.name}
        and t.status = 'processing'
        and t.mode = ${mode.name}
        -- As a subquery, so that the index of open tasks is entered at the cursor and not walked up to it.
        and t.id >= (select cursor_task_id from asl_schema.aggregator_tick where mode = ${mode.name})
      order by t.id, waiting.id
      limit ${options.limit}
    ),
    moved as (
      update asl_schema.aggregator_tick
      set swept_at = clock_timestamp(),
          swept_by = ${options.sweeper},
          -- A page that is not full was the last one: start over.
          cursor_task_id = case when page.examined < ${options.limit} then ${NIL}::uuid else page.task_id end,
          cursor_result_id = case when page.examined < ${options.limit} then ${NIL}::uuid else page.id end
      from (
        select
          (select count(*) from page) as examined,
          (select task_id from page order by task_id desc, id desc limit 1) as task_id,
          (select id from page order by task_id desc, id desc limit 1) as id
      ) page
      where aggregator_tick.mode = ${mode.name}
    ),
    examined as (
      select task_id, id, status, attempt, job_id
      from page
      where status in ('pending', 'extracting')
      union
      select r.task_id, r.id, r.status, r.attempt, r.job_id
      from asl_schema.extraction_task t
      join asl_schema.extraction_result r on r.task_id = t.id
      where t.status = 'processing'
        and t.mode = ${mode.name}
        and r.status = 'extracting'
    ),
    lost as (
      select r.task_id, r.id, r.attempt
      from examined e
      join asl_schema.extraction_result r
        on r.task_id = e.task_id
        and r.id = e.id
        -- By its key: of this status there may be 100,000 in the task.
        and (r.status = e.status) is true
        and r.attempt = e.attempt
        and r.job_id = e.job_id
      where not exists (
        select 1
        from pgboss.job j
        where j.name = ${mode.queue}
          and j.id = e.job_id
          and (j.state in ('created', 'retry', 'active')) is true
        -- Each looked up by its key, whatever else is in the queue.
        offset 0
      )
      order by r.task_id, r.id
      limit ${options.limit}
      for update of r skip locked
    ),
    ${endAttempts(tx, 'lost')},
    ended as (
      update asl_schema.extraction_result r
      set status = 'error',
          error_code = 'job_lost',
          error_message = 'The job that would deliver this result failed for good, was cancelled or was deleted.',
          failed_attempts = r.failed_attempts + (r.status = 'extracting')::int,
          delivery = null,
          finished_at = now(),
          updated_at = now()
      from lost
      where r.task_id = lost.task_id and r.id = lost.id
      returning r.task_id as "taskId", r.id as "resultId", r.attempt, r.error_code as code
    )
    select "taskId", "resultId", attempt, code from ended`;
  await tellSwept(tx, mode, lost);
  return lost.length;
}

type Swept = { taskId: string; resultId: string; attempt: number; code: string };

/** Counts what a sweep has ended, and lets those see it who look on. */
async function tellSwept(tx: Sql | Tx, mode: TaskMode, swept: readonly Swept[]): Promise<void> {
  if (swept.length === 0) return;
  await mode.count(tx as Tx, countChanges(swept, 'failed'));
  await announceResults(
    tx,
    swept.map((result) => ({ type: 'result', status: 'error', ...result })),
  );
}

const NIL = '00000000-0000-0000-0000-000000000000';

/** Ends the running attempts of the rows that the CTE `rows` has locked. */
function endAttempts(tx: Sql | Tx, rows: 'stale' | 'lost') {
  return tx`
    recorded as (
      update asl_schema.extraction_attempt a
      set outcome = 'lost',
          finished_at = now(),
          error_code = 'worker_lost',
          error_message = 'The worker that held this result died or fell silent.'
      from ${tx(rows)}
      where a.task_id = ${tx(rows)}.task_id
        and a.result_id = ${tx(rows)}.id
        and a.attempt = ${tx(rows)}.attempt
        and a.outcome is null
    )`;
}
