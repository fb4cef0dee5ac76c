import type { PgBoss } from 'pg-boss';
import { inTransaction, type Sql, type Tx } from '../db.ts';
import { insertJobs, type Job, type JobLimits, on } from '../queue.ts';
import { countChanges } from './count-changes.ts';
import { SCATTER } from './scatter.ts';
import { type EncodedSettlement, encodeSettlement, type Settlement } from './settlement.ts';
import type { Counting } from './task-mode.ts';

/**
 * - `completed`, `error`  the result has ended so
 * - `pending`             it waits for its next attempt
 * - `stale`               the attempt no longer owned the result, and nothing was changed
 */
export type SettleOutcome = 'completed' | 'error' | 'pending' | 'stale';

/**
 * Ends an attempt: the result's row, its history, the job that delivered it, the job of the next attempt and the count, where
 * its mode keeps one, are one transaction, so a crash at any moment leaves either an attempt that is still to be settled or one
 * that is.
 *
 * Also the `stale` outcome completes the delivery: the call is fenced by the job's id and retry count, so it can only end
 * this worker's own. Waits for whoever holds the row.
 */
export async function settleResult(
  sql: Sql,
  boss: PgBoss,
  settlement: Settlement,
  limits: JobLimits,
  mode: Counting = SCATTER,
): Promise<SettleOutcome> {
  const [outcome] = await settle(sql, boss, [encodeSettlement(settlement)], limits, { mode, wait: true });
  if (outcome === undefined || outcome === 'locked') throw new Error('a settle that waits has an outcome');
  return outcome;
}

/**
 * The same for attempts at several results of one task, in one transaction; answers by position. Each has an outcome of its
 * own. A row that somebody else holds at this moment is `locked`: nothing was done with it, and the others did not wait. Values
 * that PostgreSQL refuses make the whole statement fail: then each must be settled for itself.
 */
export async function settleResults(
  sql: Sql,
  boss: PgBoss,
  settlements: readonly EncodedSettlement[],
  limits: JobLimits,
  mode: Counting,
): Promise<(SettleOutcome | 'locked')[]> {
  return await settle(sql, boss, settlements, limits, { mode, wait: false });
}

async function settle(
  sql: Sql,
  boss: PgBoss,
  settlements: readonly EncodedSettlement[],
  limits: JobLimits,
  { mode, wait }: { mode: Counting; wait: boolean },
): Promise<(SettleOutcome | 'locked')[]> {
  return await inTransaction(sql, async (tx) => {
    const written = await writeEndings(tx, settlements, limits.maxAttempts, wait);
    const outcomes = settlements.map(({ resultId }) => {
      const outcome = written.get(resultId) ?? 'stale';
      // Who has waited for a row and then not got it has lost it to whom it waited for.
      return wait && outcome === 'locked' ? 'stale' : outcome;
    });
    const done = settlements.filter((_, i) => outcomes[i] !== 'locked');
    if (done.length === 0) return outcomes;
    const ended = done.map(({ job: { id, retryCount } }) => ({ id, retryCount }));
    await boss.complete(mode.queue, ended, null, on(tx));
    const next = settlements.filter((_, i) => outcomes[i] === 'pending');
    // The old job of each key has just ended in this transaction, so the exclusive queue takes the new one.
    if (next.length > 0) await insertJobs(boss, tx, mode.queue, next.map(toNextJob), limits);
    const as = (status: SettleOutcome) => settlements.filter((_, i) => outcomes[i] === status);
    await mode.count(tx, [...countChanges(as('completed'), 'success'), ...countChanges(as('error'), 'failed')]);
    return outcomes;
  });
}

function toNextJob({ taskId, resultId, nextJobId, ending }: EncodedSettlement): Job {
  if (nextJobId === undefined) throw new Error(`an ending of the kind ${ending.kind} leads to no other attempt`);
  return { taskId, resultId, jobId: nextJobId, delayMs: 'delayMs' in ending ? ending.delayMs : 0 };
}

/**
 * The fence: a row changes only while it is `extracting` under this very attempt. A worker that was stopped, swept, cancelled
 * or overtaken finds zero rows, which is the outcome `stale` and no error. A row that was passed by is told from a stale one by
 * the snapshot, in which it could be settled. Rides on the primary key, by the means that claim-results.ts tells of.
 */
async function writeEndings(
  tx: Tx,
  settlements: readonly EncodedSettlement[],
  maxAttempts: number,
  wait: boolean,
): Promise<Map<string, Exclude<SettleOutcome, 'stale'> | 'locked'>> {
  const taskId = settlements[0]?.taskId ?? null;
  // As text: a parameter of a JSON type would be encoded once more by the driver. And json, not jsonb, which would bring the
  // fields of a result into an order of its own.
  const rows = `[${settlements.map(({ row }) => row).join(',')}]`;
  const written = await tx<{ resultId: string; status: Exclude<SettleOutcome, 'stale'> | 'locked' }[]>`
    with told as materialized (
      select t.*
      from json_to_recordset(${rows}::text::json) as t (
        result_id uuid, attempt integer, kind text, spent integer, code text, message text, data json, usage jsonb,
        next_job_id uuid
      )
      -- As in claim-results.ts: the planner shall expect one row.
      where (t.result_id = t.result_id) is true
      order by t.result_id
    ),
    seen as (
      select told.result_id as id
      from told
      cross join lateral (
        select 1
        from asl_schema.extraction_result r
        where r.task_id = ${taskId}::uuid
          and r.id = told.result_id
          and (r.status = 'extracting') is true
          and r.attempt = told.attempt
        offset 0
      ) r
    ),
    fenced as (
      select
        r.task_id,
        r.id,
        told.attempt,
        told.kind,
        told.spent,
        told.code,
        told.message,
        told.data,
        told.usage,
        told.next_job_id,
        case
          when told.kind in ('completed', 'error') then told.kind
          when told.kind = 'retry' and r.failed_attempts + 1 >= ${maxAttempts} then 'error'
          else 'pending'
        end as status
      from told
      cross join lateral (
        select r.task_id, r.id, r.failed_attempts
        from asl_schema.extraction_result r
        where r.task_id = ${taskId}::uuid
          and r.id = told.result_id
          and (r.status = 'extracting') is true
          and r.attempt = told.attempt
        for update ${wait ? tx`` : tx`skip locked`}
      ) r
    ),
    recorded as (
      update asl_schema.extraction_attempt a
      set outcome = case when fenced.status = 'pending' then fenced.kind else fenced.status end,
          finished_at = now(),
          error_code = fenced.code,
          error_message = fenced.message,
          usage = fenced.usage
      from fenced
      where a.task_id = fenced.task_id
        and a.result_id = fenced.id
        and a.attempt = fenced.attempt
        and (a.outcome is null) is true
    ),
    settled as (
      update asl_schema.extraction_result r
      set status = fenced.status,
          failed_attempts = r.failed_attempts + fenced.spent,
          job_id = case when fenced.status = 'pending' then fenced.next_job_id else r.job_id end,
          delivery = null,
          extracted_data = fenced.data,
          -- Summed over the attempts, key by key: what failed has been paid for too.
          usage = case
            when fenced.usage is null then r.usage
            else (
              select jsonb_object_agg(key, total)
              from (
                select key, sum(value::numeric) as total
                from (
                  select key, value from jsonb_each_text(coalesce(r.usage, '{}'))
                  union all
                  select key, value from jsonb_each_text(fenced.usage)
                ) counts
                group by key
              ) totals
            )
          end,
          error_code = case when fenced.status = 'error' then fenced.code end,
          error_message = case when fenced.status = 'error' then fenced.message end,
          finished_at = case when fenced.status = 'pending' then null else now() end,
          updated_at = now()
      from fenced
      where r.task_id = fenced.task_id and r.id = fenced.id
      returning r.id, r.status
    )
    select id as "resultId", status from settled
    union all
    select id, 'locked' from seen where id not in (select id from fenced)`;
  return new Map(written.map(({ resultId, status }) => [resultId, status]));
}
