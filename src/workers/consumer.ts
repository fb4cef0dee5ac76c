import { setTimeout as sleep } from 'node:timers/promises';
import type { Job, PgBoss } from 'pg-boss';
import type { Sql } from '../db.ts';
import type { TaskEvent } from '../events/task-event.ts';
import { describeError, type Logger } from '../log.ts';
import { type Loop, startLoop } from '../loop.ts';
import { type ExtractJob, type JobLimits, lowestPriority, on } from '../queue.ts';
import type { ClaimOutcome } from '../tasks/claim-results.ts';
import { SCATTER } from '../tasks/scatter.ts';
import type { Counting } from '../tasks/task-mode.ts';
import { claimBatch } from './claim-batch.ts';
import { createHolder, type Source } from './holder.ts';
import type { AttemptDeps } from './run-attempt.ts';
import { createSettler } from './settler.ts';
import { createSlots } from './slots.ts';

export type ConsumerDeps = AttemptDeps & {
  sql: Sql;
  boss: PgBoss;
  limits: JobLimits;
  /** Whose queues it takes from, in turn. Default scatter. */
  modes?: readonly Counting[];
  /** How many results this process extracts at a time. */
  slots: number;
  /** How long an empty queue is left alone when nobody says that there is work. */
  pollIntervalMs: number;
  /** Names this process in the history of the results. */
  worker: string;
  log: Logger;
  /** Called when a result has reached a terminal state. */
  onSettled: () => void;
  /** Told what becomes of each result, for those who look on. */
  publish?: (event: TaskEvent) => void;
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

/** One mode's queue, and what this process knows of it. */
type Lane = Source & {
  /** The last fetch was full, or nobody has looked since there was word of more: a free slot need not wait for a poll. */
  mayHoldMore: boolean;
  fetchedAt: number;
  /** Above this priority nothing waited a moment ago: see `take`. */
  below: { priority: number; until: number } | undefined;
};

type Exhausted = Extract<ClaimOutcome, { outcome: 'exhausted' }>;
/** A lock on a row belongs to a statement that is over in milliseconds, or to a process that froze: two seconds tell. */
const LATER_MS = 100;
const LATER_TRIES = 20;
/** How long a fetch may begin below the head of the queue. */
const HEAD_MS = 500;

/**
 * Takes jobs and keeps every slot busy.
 *
 * Why not `boss.work()`: at batch size 1 it sleeps a whole polling interval after every job, even with a backlog (5 jobs a
 * second with ten workers), and with a larger batch it waits for the slowest job of the batch before it takes another. Here
 * one `fetch` takes as many jobs as there are free slots, each then runs for itself, and a slot that becomes free asks for
 * the next job at once; or, where extractions are short, finds one that was claimed ahead (slots.ts).
 */
export function startConsumer(deps: ConsumerDeps): Consumer {
  /** Deliveries that are claimed a moment later: somebody else holds their rows, or they may be dangerous. */
  const later = new Set<Promise<void>>();
  const { sql, boss, limits, log, publish = () => {} } = deps;
  const slots = createSlots(deps.slots);
  const lanes = (deps.modes ?? [SCATTER]).map((mode): Lane => {
    const settle = createSettler({ sql, boss, limits, mode });
    return { mode, settle, mayHoldMore: true, fetchedAt: Number.NEGATIVE_INFINITY, below: undefined };
  });
  let stopping = false;
  /** There was word of work, or it is time for a look: every queue may hold something until it was looked at. */
  let lookEverywhere = true;
  let lookedAt = 0;

  /** Results that are settled together free their places together. */
  let fillingSoon = false;
  const fillSoon = (): void => {
    if (fillingSoon || !lanes.some((lane) => lane.mayHoldMore)) return;
    fillingSoon = true;
    setImmediate(() => {
      fillingSoon = false;
      filling.wake();
    });
  };

  const fill = async (): Promise<undefined> => {
    if (lookEverywhere || performance.now() - lookedAt >= deps.pollIntervalMs) {
      lookEverywhere = false;
      lookedAt = performance.now();
      for (const lane of lanes) Object.assign(lane, { mayHoldMore: true, below: undefined });
    }
    for (;;) {
      const ahead = slots.ahead();
      const free = deps.slots + ahead - holder.size() - later.size;
      const asked = lanes.filter(({ mayHoldMore }) => mayHoldMore).slice(0, Math.max(0, free));
      if (stopping || asked.length === 0) return;
      // While some wait for a slot there is no hurry: rather a few large fetches than many small ones.
      if (slots.waiting() > 0 && free < ahead / 2) return;
      // Who was asked last is asked first the next time, for there may be one place only.
      lanes.push(...lanes.splice(0, 1));
      const takes = asked.map((lane, i) => take(lane, Math.ceil((free - i) / asked.length)));
      for (const one of await Promise.allSettled(takes)) if (one.status === 'rejected') throw one.reason;
    }
  };

  /**
   * Jobs that were taken leave their entries in the index of those that wait until a vacuum comes, which a transaction that idles
   * somewhere keeps from cleaning up. A fetch from the head of the queue would walk over all of them each time. So for a
   * moment one begins where the last has ended; whatever comes in above meanwhile, as a retry does, waits for that moment.
   */
  const take = async (lane: Lane, batchSize: number): Promise<void> => {
    const now = performance.now();
    const bound = lane.below !== undefined && now < lane.below.until ? lane.below : undefined;
    const isSoon = now - lane.fetchedAt < HEAD_MS / 5;
    lane.fetchedAt = now;
    const from = bound === undefined ? {} : { maxPriority: bound.priority };
    const jobs = await boss.fetch<ExtractJob>(lane.mode.queue, { batchSize, ...from, ...on(sql) });
    const isFull = jobs.length === batchSize;
    // What was not found from here on may wait above.
    lane.mayHoldMore = isFull || bound !== undefined;
    if (!isFull) lane.below = undefined;
    // Who fetches seldom gains nothing by it.
    if (isFull && isSoon && bound === undefined) noteHead(lane, jobs);
    if (jobs.length > 0) await begin(lane, jobs);
  };

  /** Beside the claim. Should it fail, the next fetch begins at the head. */
  const noteHead = (lane: Lane, jobs: Job<ExtractJob>[]): void => {
    lowestPriority(sql, lane.mode.queue, jobs).then(
      (priority) => {
        if (priority !== undefined) lane.below = { priority, until: performance.now() + HEAD_MS };
      },
      () => {},
    );
  };

  /**
   * What is delivered again may be what has killed its worker. Of such results no more are claimed than can begin at once: the
   * others would spend an attempt each time, and after a few of them be errors, for nothing but their neighbour.
   */
  const begin = async (lane: Lane, fetched: Job<ExtractJob>[]): Promise<void> => {
    let free = deps.slots - holder.size();
    const jobs = fetched.filter((job) => {
      if (job.retryCount === 0 || free-- > 0) return true;
      claimLater(lane, job);
      return false;
    });
    const outcomes = await claimBatch(deps, lane.mode, jobs);
    const idle: Job<ExtractJob>[] = [];
    jobs.forEach((job, i) => {
      const outcome = outcomes[i];
      if (outcome?.outcome === 'exhausted') tellExhausted(outcome);
      if (outcome?.outcome === 'claimed') holder.hold(lane, job, outcome);
      else if (outcome?.outcome === 'locked') claimLater(lane, job);
      else if (outcome !== undefined) idle.push(job);
    });
    if (idle.length === 0) return;
    // Deliveries with nothing to do. Should this fail, they come again, and are phantoms again.
    await boss.complete(lane.mode.queue, idle, null, on(sql));
  };

  const tellExhausted = ({ taskId, resultId, attempt }: Exhausted): void => {
    publish({ type: 'result', taskId, resultId, status: 'error', attempt, code: 'worker_lost' });
    deps.onSettled();
  };

  /** Asks a moment later, and again for a row that is locked; one that stays so is left to be delivered again. Nobody waits for it. */
  const claimLater = (lane: Lane, job: Job<ExtractJob>): void => {
    const ask = async (): Promise<void> => {
      for (let tries = 0; tries < LATER_TRIES && !stopping; tries++) {
        await sleep(LATER_MS);
        const [outcome] = await claimBatch(deps, lane.mode, [job]);
        if (outcome?.outcome === 'locked') continue;
        if (outcome?.outcome === 'claimed') holder.hold(lane, job, outcome);
        if (outcome?.outcome === 'exhausted') tellExhausted(outcome);
        if (outcome?.outcome !== 'claimed' && outcome !== undefined)
          await boss.complete(lane.mode.queue, job, null, on(sql));
        return;
      }
    };
    const asking = ask()
      .catch((error: unknown) =>
        log.warn('claiming failed: left to be delivered again', { error: describeError(error) }),
      )
      .finally(() => {
        later.delete(asking);
        fillSoon();
      });
    later.add(asking);
  };

  const holder = createHolder({ ...deps, slots, publish, onLeft: fillSoon });
  const filling: Loop = startLoop({ name: 'taking jobs', intervalMs: deps.pollIntervalMs, step: fill, log });

  return {
    wake() {
      lookEverywhere = true;
      filling.wake();
    },
    check: () => holder.check(),
    async stop(graceMs) {
      stopping = true;
      await filling.stop();
      await Promise.all(later);
      await holder.stop(graceMs);
    },
  };
}
