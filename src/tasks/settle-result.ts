import type { PgBoss } from 'pg-boss';
import { v7 as uuidv7 } from 'uuid';
import { inTransaction, type Sql, type Tx } from '../db.ts';
import { EXTRACT_QUEUE, type HeldJob, insertJobs, type JobLimits, on } from '../queue.ts';
import { storableJson, storableMessage } from '../storable.ts';

/** How an attempt ended, as its worker saw it. */
export type Ending =
  | { kind: 'completed'; data: object; usage?: object | undefined }
  | { kind: 'error'; code: string; message: string; usage?: object | undefined }
  /** A transient error: spends an attempt, and becomes an error when it was the last. */
  | { kind: 'retry'; code: string; message: string; delayMs: number; usage?: object | undefined }
  /** Not the paper's fault: back to pending for later, and nothing is spent. */
  | { kind: 'deferred' | 'released'; code: string; message: string; delayMs: number; usage?: object | undefined };

/**
 * - `completed`, `error`  the result has ended so
 * - `pending`             it waits for its next attempt
 * - `stale`               the attempt no longer owned the result, and nothing was changed
 */
export type SettleOutcome = 'completed' | 'error' | 'pending' | 'stale';

export type Settlement = {
  taskId: string;
  resultId: string;
  /** The fencing token of the claim. */
  attempt: number;
  /** The delivery that is completed in the same transaction. */
  job: HeldJob;
  ending: Ending;
};

/**
 * Ends an attempt: the result's row, its history, the job that delivered it and the job of the next attempt are one
 * transaction, so a crash at any moment leaves either an attempt that is still to be settled or one that is.
 *
 * Also the `stale` outcome completes the delivery: the call is fenced by the job's id and retry count, so it can only end
 * this worker's own.
 */
export async function settleResult(
  sql: Sql,
  boss: PgBoss,
  settlement: Settlement,
  limits: JobLimits,
): Promise<SettleOutcome> {
  const { taskId, resultId, job, ending } = settlement;
  const nextJobId = uuidv7();
  return await inTransaction(sql, async (tx) => {
    const outcome = await writeEnding(tx, settlement, nextJobId, limits.maxAttempts);
    await boss.complete(EXTRACT_QUEUE, { id: job.id, retryCount: job.retryCount }, null, on(tx));
    if (outcome === 'pending') {
      const delayMs = 'delayMs' in ending ? ending.delayMs : 0;
      // The old job of the key has just ended in this transaction, so the exclusive queue takes the new one.
      await insertJobs(boss, tx, [{ taskId, resultId, jobId: nextJobId, delayMs }], limits);
    }
    return outcome;
  });
}

/**
 * The fence: the row changes only while it is `extracting` under this very attempt. A worker that was stopped, swept,
 * cancelled or overtaken finds zero rows, which is the outcome `stale` and no error. Rides on the primary key.
 */
async function writeEnding(
  tx: Tx,
  settlement: Settlement,
  nextJobId: string,
  maxAttempts: number,
): Promise<SettleOutcome> {
  const { taskId, resultId, attempt, ending } = settlement;
  const spent = ending.kind === 'error' || ending.kind === 'retry' ? 1 : 0;
  const data = ending.kind === 'completed' ? tx.json(storableJson(ending.data)) : null;
  const usage = ending.usage === undefined ? null : tx.json(storableJson(ending.usage));
  const code = ending.kind === 'completed' ? null : ending.code;
  const message = ending.kind === 'completed' ? null : storableMessage(ending.message);
  const [settled] = await tx<{ status: Exclude<SettleOutcome, 'stale'> }[]>`
    with fenced as (
      select
        task_id,
        id,
        case
          when ${ending.kind}::text in ('completed', 'error') then ${ending.kind}::text
          when ${ending.kind}::text = 'retry' and failed_attempts + 1 >= ${maxAttempts} then 'error'
          else 'pending'
        end as status
      from asl_schema.extraction_result
      where task_id = ${taskId}::uuid
        and id = ${resultId}::uuid
        and status = 'extracting'
        and attempt = ${attempt}
      for update
    ),
    recorded as (
      update asl_schema.extraction_attempt a
      set outcome = case when fenced.status = 'pending' then ${ending.kind}::text else fenced.status end,
          finished_at = now(),
          error_code = ${code},
          error_message = ${message},
          usage = ${usage}
      from fenced
      where a.task_id = fenced.task_id
        and a.result_id = fenced.id
        and a.attempt = ${attempt}
        and a.outcome is null
    )
    update asl_schema.extraction_result r
    set status = fenced.status,
        failed_attempts = r.failed_attempts + ${spent},
        job_id = case when fenced.status = 'pending' then ${nextJobId}::uuid else r.job_id end,
        delivery = null,
        extracted_data = ${data},
        -- Summed over the attempts: what failed has been paid for too.
        usage = ${usage === null ? tx`r.usage` : sumUsage(tx, usage)},
        error_code = case when fenced.status = 'error' then ${code}::text end,
        error_message = case when fenced.status = 'error' then ${message}::text end,
        finished_at = case when fenced.status = 'pending' then null else now() end,
        updated_at = now()
    from fenced
    where r.task_id = fenced.task_id and r.id = fenced.id
    returning r.status`;
  return settled?.status ?? 'stale';
}

/** Adds the counts of this attempt to those of the result, key by key. */
function sumUsage(tx: Tx, usage: ReturnType<Tx['json']>) {
  return tx`(
          select jsonb_object_agg(key, total)
          from (
            select key, sum(value::numeric) as total
            from (
              select key, value from jsonb_each_text(coalesce(r.usage, '{}'))
              union all
              select key, value from jsonb_each_text(${usage}::jsonb)
            ) counts
            group by key
          ) totals
        )`;
}
