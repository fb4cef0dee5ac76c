import { setTimeout as sleep } from 'node:timers/promises';
import type { Job } from 'pg-boss';
import { validate as isUuid, NIL } from 'uuid';
import { isDatabaseAway } from '../db.ts';
import { describeError, type Logger } from '../log.ts';
import { type Loop, startLoop } from '../loop.ts';
import { EXTRACT_QUEUE, type ExtractJob, on, touchJobs } from '../queue.ts';
import { checkClaims } from '../tasks/check-claims.ts';
import { type Claim, type ClaimOutcome, claimResults, type Delivery } from '../tasks/claim-results.ts';
import { type AttemptDeps, runAttempt, type StopReason } from './run-attempt.ts';

export type ConsumerDeps = AttemptDeps & {
  /** How many results this process extracts at a time. */
  slots: number;
  /** How long an empty queue is left alone when nobody says that there is work. */
  pollIntervalMs: number;
  /** Names this process in the history of the results. */
  worker: string;
  log: Logger;
  /** Called when a result has reached a terminal state. */
  onSettled: () => void;
};

export type Consumer = {
  /** There may be work in the queue. */
  wake(): void;
  /** Some task was cancelled or stopped: this process may be working for it. */
  check(): void;
  /**
   * Takes no new job, gives running attempts `graceMs` to end, then hands the rest back for others to start at once, which
   * spends no attempt.
   */
  stop(graceMs: number): Promise<void>;
};

/** The longest that handing back takes at a stop. */
const HAND_BACK_MS = 5000;

type Held = { job: Job<ExtractJob>; claim: Claim; stop: AbortController; done: Promise<void> };

/** A lock on a row belongs to a statement that is over in milliseconds, or to a process that froze: two seconds tell. */
const LOCKED_WAIT_MS = 100;
const LOCKED_TRIES = 20;

/** How soon an extraction hears that its result is no longer its own, when no word of it arrives. */
const WATCH_MS = 1000;

/**
 * Takes jobs and keeps every slot busy.
 *
 * Why not `boss.work()`: at batch size 1 it sleeps a whole polling interval after every job, even with a backlog (5 jobs a
 * second with ten workers), and with a larger batch it waits for the slowest job of the batch before it takes another. Here
 * one `fetch` takes as many jobs as there are free slots, each then runs for itself, and a slot that becomes free asks for
 * the next job at once.
 */
export function startConsumer(deps: ConsumerDeps): Consumer {
  const held = new Map<string, Held>();
  /** Deliveries whose rows somebody else holds at the moment. */
  const locked = new Set<Promise<void>>();
  const { sql, boss, slots, log } = deps;
  let stopping = false;
  /** The last fetch was full: the queue may hold more, so a free slot need not wait for a poll or a word. */
  let mayHoldMore = false;

  const fill = async (): Promise<undefined> => {
    for (;;) {
      const free = slots - held.size - locked.size;
      if (stopping || free === 0) return;
      const jobs = await boss.fetch<ExtractJob>(EXTRACT_QUEUE, { batchSize: free, ...on(sql) });
      mayHoldMore = jobs.length === free;
      if (jobs.length === 0) return;
      await begin(jobs);
      if (!mayHoldMore) return;
    }
  };

  const begin = async (jobs: Job<ExtractJob>[]): Promise<void> => {
    const outcomes = await claim(deps, jobs);
    const idle: Job<ExtractJob>[] = [];
    jobs.forEach((job, i) => {
      const outcome = outcomes[i];
      if (outcome?.outcome === 'claimed') hold(job, outcome);
      else if (outcome?.outcome === 'locked') claimLater(job);
      else if (outcome !== undefined) idle.push(job);
    });
    if (idle.length === 0) return;
    // Deliveries with nothing to do. Should this fail, they come again, and are phantoms again.
    await boss.complete(EXTRACT_QUEUE, idle, null, on(sql));
    if (outcomes.some((outcome) => outcome?.outcome === 'exhausted')) deps.onSettled();
  };

  /** Asks again for a row that was locked; one that stays so is left to be delivered again. No other job waits for it. */
  const claimLater = (job: Job<ExtractJob>): void => {
    const ask = async (): Promise<void> => {
      for (let tries = 0; tries < LOCKED_TRIES && !stopping; tries++) {
        await sleep(LOCKED_WAIT_MS);
        const [outcome] = await claim(deps, [job]);
        if (outcome?.outcome === 'locked') continue;
        if (outcome?.outcome === 'claimed') hold(job, outcome);
        else if (outcome !== undefined) await boss.complete(EXTRACT_QUEUE, job, null, on(sql));
        return;
      }
    };
    const asking = ask()
      .catch((error: unknown) =>
        log.warn('claiming failed: left to be delivered again', { error: describeError(error) }),
      )
      .finally(() => {
        locked.delete(asking);
        if (mayHoldMore) filling.wake();
      });
    locked.add(asking);
  };

  const hold = (job: Job<ExtractJob>, claimed: Claim): void => {
    const stop = new AbortController();
    const { taskId, resultId, attempt } = claimed;
    const attemptLog = log.child({ taskId, resultId, attempt });
    const run = async (): Promise<void> => {
      const startedAt = performance.now();
      const outcome = await runAttempt(deps, claimed, job, stop.signal, attemptLog);
      if (held.get(job.id) === entry) held.delete(job.id);
      attemptLog.debug('attempt ended', { outcome, ms: Math.round(performance.now() - startedAt) });
      if (outcome === 'completed' || outcome === 'error') deps.onSettled();
      if (mayHoldMore) filling.wake();
    };
    // A delivery of ours that lapsed may come back to ourselves: the attempt before has lost its result to this one.
    held.get(job.id)?.stop.abort('claim_lost' satisfies StopReason);
    const entry: Held = { job, claim: claimed, stop, done: run() };
    held.set(job.id, entry);
  };

  /** One statement for all held jobs. A job that it does not find any more has been given to another worker, or ended. */
  const beat = async (): Promise<undefined> => {
    const before = [...held.values()];
    if (before.length === 0) return;
    const jobs = before.map(({ job }) => job);
    const alive = await touchJobs(boss, sql, jobs);
    giveUp(before.filter(({ job }) => !alive.has(job.id)));
  };

  /** One statement for all held results: a cancel, a deadline or a sweep on any process has taken away what it lacks. */
  const watch = async (): Promise<undefined> => {
    const before = [...held.values()];
    if (before.length === 0) return;
    const claims = before.map(({ claim }) => claim);
    const own = await checkClaims(sql, claims);
    giveUp(before.filter(({ claim }) => !own.has(claim.resultId)));
  };

  /** What ended by itself while the statement ran has left `held`, and needs no word. */
  const giveUp = (lost: Held[]): void => {
    for (const one of lost) {
      if (held.get(one.job.id) !== one || one.stop.signal.aborted) continue;
      log.info('claim lost: the attempt is given up', { ...one.job.data, attempt: one.claim.attempt });
      one.stop.abort('claim_lost' satisfies StopReason);
    }
  };

  const filling: Loop = startLoop({ name: 'taking jobs', intervalMs: deps.pollIntervalMs, step: fill, log });
  // Three beats fit into the time after which a silent delivery is given up.
  const beatMs = (deps.limits.heartbeatSeconds * 1000) / 3;
  const beating: Loop = startLoop({ name: 'heartbeat', intervalMs: beatMs, step: beat, log });
  const watching: Loop = startLoop({ name: 'watching claims', intervalMs: WATCH_MS, step: watch, log });

  return {
    wake: () => filling.wake(),
    check: () => watching.wake(),
    async stop(graceMs) {
      stopping = true;
      await filling.stop();
      await Promise.all(locked);
      const ended = Promise.all([...held.values()].map(({ done }) => done));
      await Promise.race([ended, sleep(graceMs, undefined, { ref: false })]);
      for (const { stop } of held.values()) stop.abort('shutdown' satisfies StopReason);
      // What can't be handed back in this time, with the database away, is taken over when its heartbeat has lapsed.
      await Promise.race([ended, sleep(HAND_BACK_MS, undefined, { ref: false })]);
      await Promise.all([beating.stop(), watching.stop()]);
    },
  };
}

/**
 * Claims a fetched batch in one statement; answers by position. Should one row make the statement fail, the others must not
 * suffer: then each is claimed for itself, and one that fails again has no outcome and is left to be delivered again.
 */
async function claim(deps: ConsumerDeps, jobs: readonly Job<ExtractJob>[]): Promise<(ClaimOutcome | undefined)[]> {
  const { sql, worker, log } = deps;
  const { maxAttempts } = deps.limits;
  const claimAll = (deliveries: Delivery[]) => claimResults(sql, { deliveries, worker, maxAttempts });
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
