import type { PgBoss } from 'pg-boss';
import type { Tx } from '../db.ts';
import { on, type ResultQueue } from '../queue.ts';
import { countChanges } from './count-changes.ts';
import type { Counting } from './task-mode.ts';

export type EndResults = {
  mode: Counting;
  /** Tasks of this mode whose rows the caller has locked. */
  taskIds: readonly string[];
  /** What the unfinished results become; an error needs a code and a message. */
  ending: { status: 'cancelled' } | { status: 'error'; code: string; message: string };
};

/**
 * Ends every result of some tasks that has not ended by itself, waiting or in work, and removes its job. What has finished
 * stays. Returns how many it ended.
 *
 * Nothing is asked of the workers: the row is terminal from this commit on, so a claim that comes later is a phantom, a
 * settle that comes later is stale, and a worker in the midst of an extraction is told to stop wasting its time by its next
 * look at its claims. 100,000 results are two statements and one delete.
 *
 * Locks rows in the order of their key, as claims do, and waits for the claim or settle that holds one.
 */
export async function endResults(tx: Tx, boss: PgBoss, { mode, taskIds, ending }: EndResults): Promise<number> {
  if (taskIds.length === 0) return 0;
  const code = ending.status === 'error' ? ending.code : null;
  const message = ending.status === 'error' ? ending.message : null;
  // A statement of its own: it waits for the claims that are in flight, and the next one, with its snapshot from after that,
  // sees the attempts which they have begun. In one statement those would stay open for ever.
  await tx`
    select count(*)
    from (
      select 1
      from asl_schema.extraction_result
      where task_id = any(${taskIds as string[]}::uuid[])
        and status in ('pending', 'extracting')
      order by task_id, id
      for update
    ) unfinished`;
  const ended = await tx<{ taskId: string; jobId: string }[]>`
    with recorded as (
      update asl_schema.extraction_attempt a
      set outcome = 'cancelled',
          finished_at = now(),
          error_code = ${code},
          error_message = ${message}
      from asl_schema.extraction_result r
      where r.task_id = any(${taskIds as string[]}::uuid[])
        and r.status = 'extracting'
        and a.task_id = r.task_id
        and a.result_id = r.id
        and a.attempt = r.attempt
        and a.outcome is null
    )
    update asl_schema.extraction_result
    set status = ${ending.status},
        error_code = ${code},
        error_message = ${message},
        delivery = null,
        finished_at = now(),
        updated_at = now()
    where task_id = any(${taskIds as string[]}::uuid[])
      and status in ('pending', 'extracting')
    returning task_id as "taskId", job_id as "jobId"`;
  const jobIds = ended.map((result) => result.jobId);
  await deleteJobs(tx, boss, mode.queue, jobIds);
  await mode.count(tx, countChanges(ended, ending.status === 'error' ? 'failed' : 'cancelled'));
  return ended.length;
}

/** Removes the jobs of results that need none any more; without it 100,000 phantoms would stand before the next task. */
export async function deleteJobs(tx: Tx, boss: PgBoss, queue: ResultQueue, jobIds: readonly string[]): Promise<void> {
  if (jobIds.length > 0) await boss.deleteJob(queue, [...jobIds], on(tx));
}
