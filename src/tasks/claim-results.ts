import { inTransaction, type Sql, type Tx } from '../db.ts';
import { countChanges } from './count-changes.ts';
import { SCATTER } from './scatter.ts';
import type { Counting } from './task-mode.ts';

/** One delivery of one job by pg-boss. */
export type Delivery = {
  taskId: string;
  resultId: string;
  jobId: string;
  /** The job's retry count: higher means that pg-boss has given up every delivery before this one. */
  delivery: number;
};

/** A result in this worker's hands; `attempt` is the token that every later write must show. */
export type Claim = {
  outcome: 'claimed';
  taskId: string;
  resultId: string;
  attempt: number;
  failedAttempts: number;
  documentId: string;
  storageKey: string;
  filename: string;
  mediaType: 'application/pdf' | 'text/plain' | 'text/markdown';
  templateId: string;
};

/**
 * - `claimed`    the result is this worker's until it settles or falls silent
 * - `exhausted`  the worker before died, and it was the last attempt: the result has become an error
 * - `phantom`    nothing to do for this delivery: the result has ended, or belongs to another job
 * - `locked`     somebody else's transaction holds the row at this moment: ask again
 */
export type ClaimOutcome =
  | Claim
  | { outcome: 'exhausted'; taskId: string; resultId: string; attempt: number }
  | { outcome: 'phantom' | 'locked'; taskId: string; resultId: string };

/**
 * The guard: takes the results of the given deliveries, each for this worker alone. One statement, so a phantom costs a row
 * of it and no extraction.
 *
 * A `pending` row is taken. An `extracting` row is taken over only from an earlier delivery of the same job: pg-boss makes a
 * higher one only after it has given the earlier up, so a living worker never loses its row to a duplicate.
 *
 * Waits for no lock: a settle, a sweep or a cancel may hold a row for a moment, and a process that froze in the midst of one
 * for many seconds, and the other results of the batch must not wait with it. A row that was passed by is told from a
 * phantom by the snapshot, in which it could be claimed, so it is never given up as one.
 *
 * Rides on the primary key: `lateral` makes each result a look-up of its own, in the order in which everybody locks, and
 * `is true` hides the status from the planner, who would else walk through all results of that status.
 */
export async function claimResults(sql: Sql | Tx, options: ClaimOptions): Promise<ClaimOutcome[]> {
  const { deliveries, mode = SCATTER } = options;
  if (deliveries.length === 0) return [];
  // A first delivery takes nothing over, and so ends nothing that would have to be counted.
  if (deliveries.every(({ delivery }) => delivery === 0)) return await writeClaims(sql, options);
  const claimAndCount = async (tx: Tx): Promise<ClaimOutcome[]> => {
    const outcomes = await writeClaims(tx, options);
    const exhausted = outcomes.filter(({ outcome }) => outcome === 'exhausted');
    await mode.count(tx, countChanges(exhausted, 'failed'));
    return outcomes;
  };
  return 'begin' in sql ? await inTransaction(sql, claimAndCount) : await claimAndCount(sql);
}

export type ClaimOptions = {
  /** Deliveries of the queue of `mode`. */
  deliveries: readonly Delivery[];
  worker: string;
  maxAttempts: number;
  /** Default scatter. */
  mode?: Counting;
};

async function writeClaims(sql: Sql | Tx, options: ClaimOptions): Promise<ClaimOutcome[]> {
  const { deliveries, worker, maxAttempts } = options;
  const claims = await sql<(Omit<Claim, 'outcome'> & { status: 'extracting' | 'error' | 'locked' })[]>`
    with delivered as materialized (
      select d.task_id, d.result_id, d.job_id, d.delivery
      from jsonb_to_recordset(${sql.json(deliveries.map(toRow))})
        as d (task_id uuid, result_id uuid, job_id uuid, delivery integer)
      -- Always so, and not believed by the planner: of one row it expects no more than a look-up by the key, also in a plan that
      -- was made when the table was small and is kept.
      where (d.result_id = d.result_id) is true
      order by d.task_id, d.result_id
    ),
    claimable as (
      select d.*
      from delivered d
      cross join lateral (
        select 1
        from asl_schema.extraction_result r
        where r.task_id = d.task_id
          and r.id = d.result_id
          and r.job_id = d.job_id
          and (r.status = 'pending' or (r.status = 'extracting' and r.delivery < d.delivery)) is true
        offset 0
      ) r
    ),
    locked as (
      select
        r.task_id,
        r.id,
        r.attempt,
        d.delivery,
        r.status = 'extracting' as taken_over,
        r.status = 'extracting' and r.failed_attempts + 1 >= ${maxAttempts} as exhausted
      from claimable d
      cross join lateral (
        select r.task_id, r.id, r.attempt, r.status, r.failed_attempts
        from asl_schema.extraction_result r
        where r.task_id = d.task_id
          and r.id = d.result_id
          and r.job_id = d.job_id
          and (
            r.status = 'pending'
            or (
              r.status = 'extracting'
              and r.delivery < d.delivery
              -- A claim of an earlier delivery that was committed after this snapshot has begun an attempt which this
              -- statement can't see, and so couldn't end: such a row counts as locked, and the next try sees it.
              and exists (
                select 1
                from asl_schema.extraction_attempt a
                where a.task_id = r.task_id
                  and a.result_id = r.id
                  and a.attempt = r.attempt
              )
            )
          ) is true
        for update skip locked
      ) r
    ),
    lost as (
      update asl_schema.extraction_attempt a
      set outcome = 'lost',
          finished_at = now(),
          error_code = 'worker_lost',
          error_message = ${WORKER_LOST}
      from locked
      where locked.taken_over
        and a.task_id = locked.task_id
        and a.result_id = locked.id
        and a.attempt = locked.attempt
        and (a.outcome is null) is true
    ),
    taken as (
      update asl_schema.extraction_result r
      set status = case when locked.exhausted then 'error' else 'extracting' end,
          attempt = r.attempt + (not locked.exhausted)::int,
          failed_attempts = r.failed_attempts + locked.taken_over::int,
          delivery = locked.delivery,
          error_code = case when locked.exhausted then 'worker_lost' end,
          error_message = case when locked.exhausted then ${WORKER_LOST} end,
          started_at = case when locked.exhausted then r.started_at else now() end,
          finished_at = case when locked.exhausted then now() end,
          updated_at = now()
      from locked
      where r.task_id = locked.task_id and r.id = locked.id
      returning
        r.task_id, r.id, r.status, r.attempt, r.failed_attempts, r.document_id, r.storage_key, r.filename, r.media_type
    ),
    begun as (
      insert into asl_schema.extraction_attempt (task_id, result_id, attempt, worker)
      select task_id, id, attempt, ${worker}
      from taken
      where status = 'extracting'
    )
    select
      taken.task_id as "taskId",
      taken.id as "resultId",
      taken.status,
      taken.attempt,
      taken.failed_attempts as "failedAttempts",
      taken.document_id as "documentId",
      taken.storage_key as "storageKey",
      taken.filename,
      taken.media_type as "mediaType",
      t.template_id as "templateId"
    from taken
    join asl_schema.extraction_task t on t.id = taken.task_id
    union all
    select task_id, result_id, 'locked', null, null, null, null, null, null, null
    from claimable
    where result_id not in (select id from taken)`;

  const byResult = new Map(claims.map((claim) => [claim.resultId, claim]));
  return deliveries.map(({ taskId, resultId }) => {
    const claim = byResult.get(resultId);
    if (claim === undefined) return { outcome: 'phantom', taskId, resultId };
    if (claim.status === 'locked') return { outcome: 'locked', taskId, resultId };
    if (claim.status === 'error') return { outcome: 'exhausted', taskId, resultId, attempt: claim.attempt };
    const { status: _, ...rest } = claim;
    return { outcome: 'claimed', ...rest };
  });
}

const WORKER_LOST = 'The worker that held this result died or fell silent, and no attempt is left.';

function toRow(delivery: Delivery): Record<string, string | number> {
  return {
    task_id: delivery.taskId,
    result_id: delivery.resultId,
    job_id: delivery.jobId,
    delivery: delivery.delivery,
  };
}
