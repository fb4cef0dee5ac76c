import assert from 'node:assert/strict';
import { on } from '../../../src/queue.ts';
import { claimResults } from '../../../src/tasks/claim-results.ts';
import { settleResult } from '../../../src/tasks/settle-result.ts';
import type { Ending } from '../../../src/tasks/settlement.ts';
import type { Fetched } from '../../support/fixtures.ts';
import { jobLimits, MAX_ATTEMPTS } from './limits.ts';
import type { Operation } from './operations.ts';
import { type Event, type Ground, pick, type WorkerName } from './world.ts';

/** Deliveries that a worker was once given, at most one a result, as a batch has them. */
export function chooseDeliveries({ world }: Ground, operation: Extract<Operation, { do: 'claim' }>): Fetched[] {
  const { fetched } = world.workers[operation.worker];
  const chosen = new Map<string, Fetched>();
  for (let n = 0; n < operation.count; n++) {
    const one = pick(fetched, operation.which + n);
    if (one !== undefined && !chosen.has(one.delivery.resultId)) chosen.set(one.delivery.resultId, one);
  }
  return [...chosen.values()];
}

/** As the consumer does; without `completes` it dies before it completes the deliveries that brought it nothing. */
export async function claim(
  { sql, boss, mode, world }: Ground,
  worker: WorkerName,
  batch: Fetched[],
  completes: boolean,
): Promise<Event[]> {
  const deliveries = batch.map(({ delivery }) => delivery);
  const outcomes = await claimResults(sql, { deliveries, worker, maxAttempts: MAX_ATTEMPTS, mode });
  const events = batch.map((fetched, i): Event => {
    const outcome = outcomes[i];
    assert.ok(outcome, 'every delivery has an answer');
    if (outcome.outcome === 'claimed') world.workers[worker].held.push({ job: fetched.job, claim: outcome });
    return { event: 'claim', fetched, outcome };
  });
  // A row that was locked is asked for again, so its delivery is kept.
  const idle = batch.filter((_, i) => /phantom|exhausted/.test(outcomes[i]?.outcome ?? '')).map(({ job }) => job);
  if (completes && idle.length > 0) await boss.complete(mode.queue, idle, null, on(sql));
  return events;
}

export async function settle(ground: Ground, operation: Extract<Operation, { do: 'settle' }>): Promise<Event[]> {
  const { sql, boss, mode, world } = ground;
  const held = pick(world.workers[operation.worker].held, operation.which);
  if (held === undefined) return [];
  const { taskId, resultId, attempt } = held.claim;
  const mark = `mark-${world.marks++}`;
  const ending: Ending =
    operation.kind === 'completed'
      ? { kind: 'completed', data: { mark } }
      : { kind: operation.kind, code: operation.kind, message: mark, delayMs: 0 };
  const settlement = { taskId, resultId, attempt, job: held.job, ending };
  const outcome = await settleResult(sql, boss, settlement, jobLimits, mode).catch(refusal);
  return [{ event: 'settle', held, ending, outcome }];
}

/** What it means that the queue would not take a job: its key has a live job already. Any other error is thrown on. */
export function refusal(error: unknown): 'refused' {
  if (error instanceof Error && error.message.includes('have a live twin in the queue')) return 'refused';
  throw error;
}
