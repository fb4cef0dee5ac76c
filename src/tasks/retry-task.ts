import type { PgBoss } from 'pg-boss';
import { v7 as uuidv7 } from 'uuid';
import { inTransaction, type Sql, type Tx } from '../db.ts';
import { announceTasks } from '../events/announce.ts';
import { MODES } from '../modes.ts';
import { headPriority, insertJobs, type JobLimits } from '../queue.ts';
import { notifyWake } from '../wake.ts';
import { analyzeAfterInsert } from './analyze.ts';
import { countChanges } from './count-changes.ts';
import { deleteJobs } from './end-results.ts';
import type { TaskLimits, TaskModeName } from './task.ts';
import type { TaskMode } from './task-mode.ts';

export type RetryRequest = {
  taskId: string;
  /** Only these of the failed and cancelled results; undefined: all of them. */
  resultIds?: readonly string[] | undefined;
  /** Take the place of the task's own, which the retry lifts: a deadline that has passed would end it at once. */
  limits: TaskLimits;
};

export type RetryOutcome =
  | { outcome: 'retried'; retried: number }
  | { outcome: 'unknown' }
  /** Names at most twenty of the `count` ids that are no results of this task. */
  | { outcome: 'unknown_results'; count: number; resultIds: string[] };

/**
 * Gives failed and cancelled results another chance, each with its full number of attempts and a fresh job, in one
 * transaction; the task is open again then, and closes once more. Completed results are untouched, attempts go on counting,
 * and the history stays. A fan-out task that ended before its results were all made goes on with that. Without anything to
 * retry nothing changes.
 *
 * The task's row is locked first: the close that may be looking at it looks again after this commit.
 */
export async function retryTask(
  sql: Sql,
  boss: PgBoss,
  request: RetryRequest,
  jobLimits: JobLimits,
): Promise<RetryOutcome> {
  const { taskId, resultIds, limits } = request;
  let mode: TaskMode | undefined;
  const outcome = await inTransaction(sql, async (tx): Promise<RetryOutcome> => {
    const [task] = await tx<{ mode: TaskModeName }[]>`
      select mode
      from asl_schema.extraction_task
      where id = ${taskId}::uuid
      for update`;
    if (task === undefined) return { outcome: 'unknown' };
    mode = MODES[task.mode];
    if (resultIds !== undefined) {
      const strangers = await findStrangers(tx, taskId, resultIds);
      if (strangers !== undefined) return strangers;
    }
    const retried = await putBack(tx, taskId, resultIds);
    // Whoever opens a task again must see to it that the rest of its results is made, also if only some were asked for.
    const opens = resultIds === undefined || retried.length > 0;
    const resumed = opens && (await mode.resume(tx, boss, taskId, jobLimits));
    if (retried.length === 0 && !resumed) return { outcome: 'retried', retried: 0 };
    // A result that a sweep has ended may have left a live job behind, which would keep the new one of its key out.
    const oldJobIds = retried.map((result) => result.oldJobId);
    await deleteJobs(tx, boss, mode.queue, oldJobIds);
    const head = await headPriority(tx, mode.queue);
    const jobs = retried.map(({ resultId, jobId }, position) => ({
      taskId,
      resultId,
      jobId,
      priority: head - position,
    }));
    await insertJobs(boss, tx, mode.queue, jobs, jobLimits);
    const were = (status: Retried['status']) => retried.filter((result) => result.status === status);
    await mode.count(tx, [
      ...countChanges(were('error'), 'failed', -1),
      ...countChanges(were('cancelled'), 'cancelled', -1),
    ]);
    await tx`
      update asl_schema.extraction_task
      set status = 'processing',
          status_reason = null,
          completed_at = null,
          deadline_at = ${limits.deadlineAt},
          max_failed_count = ${limits.maxFailedCount},
          max_failed_percent = ${limits.maxFailedPercent}
      where id = ${taskId}::uuid`;
    await notifyWake(tx, 'asl_jobs');
    await announceTasks(tx, [taskId]);
    return { outcome: 'retried', retried: retried.length };
  });
  if (outcome.outcome === 'retried' && mode) analyzeAfterInsert(sql, boss, mode.queue, outcome.retried);
  return outcome;
}

type Retried = { taskId: string; resultId: string; status: 'error' | 'cancelled'; oldJobId: string; jobId: string };

async function putBack(tx: Tx, taskId: string, resultIds: readonly string[] | undefined): Promise<Retried[]> {
  const failed = await tx<Omit<Retried, 'jobId'>[]>`
    select task_id as "taskId", id as "resultId", status, job_id as "oldJobId"
    from asl_schema.extraction_result
    where task_id = ${taskId}::uuid
      and status in ('error', 'cancelled')
      ${resultIds === undefined ? tx`` : tx`and id = any(${resultIds as string[]}::uuid[])`}
    order by id
    for update`;
  const retried = failed.map((result) => ({ ...result, jobId: uuidv7() }));
  await tx`
    update asl_schema.extraction_result r
    set status = 'pending',
        failed_attempts = 0,
        job_id = fresh.job_id,
        error_code = null,
        error_message = null,
        finished_at = null,
        updated_at = now()
    from unnest(
      ${retried.map((result) => result.resultId)}::uuid[],
      ${retried.map((result) => result.jobId)}::uuid[]
    ) as fresh (id, job_id)
    where r.task_id = ${taskId}::uuid and r.id = fresh.id`;
  return retried;
}

async function findStrangers(tx: Tx, taskId: string, resultIds: readonly string[]): Promise<RetryOutcome | undefined> {
  const strangers = await tx<{ id: string; count: number }[]>`
    select asked.id, count(*) over ()::int as count
    from unnest(${resultIds as string[]}::uuid[]) with ordinality as asked (id, position)
    where not exists (
      select 1
      from asl_schema.extraction_result r
      where r.task_id = ${taskId}::uuid and r.id = asked.id
    )
    order by asked.position
    limit 20`;
  const [first] = strangers;
  if (first === undefined) return undefined;
  return { outcome: 'unknown_results', count: first.count, resultIds: strangers.map((row) => row.id) };
}
