import type { Job } from 'pg-boss';
import { validate as isUuid, NIL } from 'uuid';
import { isDatabaseAway, type Sql } from '../db.ts';
import { describeError, type Logger } from '../log.ts';
import type { ExtractJob, JobLimits } from '../queue.ts';
import { type ClaimOutcome, claimResults, type Delivery } from '../tasks/claim-results.ts';
import type { Counting } from '../tasks/task-mode.ts';

export type ClaimDeps = {
  sql: Sql;
  limits: JobLimits;
  /** Names this process in the history of the results. */
  worker: string;
  log: Logger;
};

/**
 * Claims a fetched batch in one statement; answers by position. Should one row make the statement fail, the others must not
 * suffer: then each is claimed for itself, and one that fails again has no outcome and is left to be delivered again.
 */
export async function claimBatch(
  { sql, limits: { maxAttempts }, worker, log }: ClaimDeps,
  mode: Counting,
  jobs: readonly Job<ExtractJob>[],
): Promise<(ClaimOutcome | undefined)[]> {
  const claimAll = (deliveries: Delivery[]) => claimResults(sql, { deliveries, worker, maxAttempts, mode });
  const deliveries = jobs.map(toDelivery);
  try {
    return await claimAll(deliveries);
  } catch (error) {
    if (isDatabaseAway(error)) throw error;
    log.error('claiming a batch failed: claiming one by one', { error: describeError(error) });
    const single = await Promise.allSettled(deliveries.map((delivery) => claimAll([delivery])));
    return single.map((one) => (one.status === 'fulfilled' ? one.value[0] : undefined));
  }
}

/** A payload that names no result, which only a stranger can have put there, is a delivery of nothing: a phantom. */
function toDelivery({ id, retryCount, data }: Job<ExtractJob>): Delivery {
  const named = isUuid(data?.taskId) && isUuid(data?.resultId);
  const { taskId, resultId } = named ? data : { taskId: NIL, resultId: NIL };
  return { taskId, resultId, jobId: id, delivery: retryCount };
}
