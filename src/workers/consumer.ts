import { setTimeout as sleep } from 'node:timers/promises';
import type { Job, PgBoss } from 'pg-boss';
import { createContentReader } from '../documents/content-reader.ts';
import { withLogEvents } from '../events/log-events.ts';
import type { TaskEvent } from '../events/task-event.ts';
import { describeError, type Logger } from '../log.ts';
import { type Loop, startLoop } from '../loop.ts';
import { type ExtractJob, type JobLimits, on, touchJobs } from '../queue.ts';
import { checkClaims } from '../tasks/check-claims.ts';
import type { Claim, ClaimOutcome } from '../tasks/claim-results.ts';
import { SCATTER } from '../tasks/scatter.ts';
import type { Counting } from '../tasks/task-mode.ts';
import { createTemplateReader } from '../templates/template-reader.ts';
import { claimBatch } from './claim-batch.ts';
import { type AttemptDeps, runAttempt, type Settle, type StopReason } from './run-attempt.ts';
import { createSettler } from './settler.ts';
import { createSlots } from './slots.ts';

export type ConsumerDeps = AttemptDeps & {
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

/** The longest that handing back takes at a stop. */
const HAND_BACK_MS = 5000;

/** One mode's queue, and what this process knows of it. */
type Lane = {
  mode: Counting;
  settle: Settle;
  /** The last fetch was full, or nobody has looked since there was word of more: a free slot need not wait for a poll. */
  mayHoldMore: boolean;
};

type Exhausted = Extract<ClaimOutcome, { outcome: 'exhausted' }>;
type Held = {
  lane: Lane;
  job: Job<ExtractJob>;
  claim: Claim;
  /** Whether it has had a slot. */
  begun: () => boolean;
  stop: AbortController;
  done: Promise<void>;
};

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
 * the next job at once; or, where extractions are short, finds one that was claimed ahead (slots.ts).
 */
export function startConsumer(deps: ConsumerDeps): Consumer {
  const held = new Map<string, Held>();
  /** Deliveries whose rows somebody else holds at the moment. */
  const locked = new Set<Promise<void>>();
  const { sql, boss, limits, log, publish = () => {} } = deps;
  const slots = createSlots(deps.slots);
  const lanes = (deps.modes ?? [SCATTER]).map((mode): Lane => {
    return { mode, settle: createSettler({ sql, boss, limits, mode }), mayHoldMore: true };
  });
  const parts = {
    ...deps,
    noteWait: slots.noteWait,
    readTemplate: createTemplateReader(sql),
    readContent: createContentReader(sql),
  };
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
      for (const lane of lanes) lane.mayHoldMore = true;
    }
    for (;;) {
      const ahead = slots.ahead();
      const free = deps.slots + ahead - held.size - locked.size;
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

  const take = async (lane: Lane, batchSize: number): Promise<void> => {
    const jobs = await boss.fetch<ExtractJob>(lane.mode.queue, { batchSize, ...on(sql) });
    lane.mayHoldMore = jobs.length === batchSize;
    if (jobs.length > 0) await begin(lane, jobs);
  };

  const begin = async (lane: Lane, jobs: Job<ExtractJob>[]): Promise<void> => {
    const outcomes = await claimBatch(deps, lane.mode, jobs);
    const idle: Job<ExtractJob>[] = [];
    jobs.forEach((job, i) => {
      const outcome = outcomes[i];
      if (outcome?.outcome === 'exhausted') tellExhausted(outcome);
      if (outcome?.outcome === 'claimed') hold(lane, job, outcome);
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

  /** Asks again for a row that was locked; one that stays so is left to be delivered again. No other job waits for it. */
  const claimLater = (lane: Lane, job: Job<ExtractJob>): void => {
    const ask = async (): Promise<void> => {
      for (let tries = 0; tries < LOCKED_TRIES && !stopping; tries++) {
        await sleep(LOCKED_WAIT_MS);
        const [outcome] = await claimBatch(deps, lane.mode, [job]);
        if (outcome?.outcome === 'locked') continue;
        if (outcome?.outcome === 'claimed') hold(lane, job, outcome);
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
        locked.delete(asking);
        fillSoon();
      });
    locked.add(asking);
  };

  const hold = (lane: Lane, job: Job<ExtractJob>, claimed: Claim): void => {
    const stop = new AbortController();
    const { taskId, resultId, attempt } = claimed;
    const about = { taskId, resultId, attempt };
    const attemptLog = withLogEvents(log.child(about), about, publish);
    publish({ type: 'result', ...about, status: 'extracting' });
    let begun = false;
    const enterSlot = async (signal: AbortSignal): Promise<() => void> => {
      const leave = await slots.enter(signal);
      begun = true;
      return leave;
    };
    const run = async (): Promise<void> => {
      const startedAt = performance.now();
      let code: string | undefined;
      const settle: Settle = (settlement) => {
        code = 'code' in settlement.ending ? settlement.ending.code : undefined;
        return lane.settle(settlement);
      };
      const outcome = await runAttempt({ ...parts, settle, enterSlot }, claimed, job, stop.signal, attemptLog);
      if (held.get(job.id) === entry) held.delete(job.id);
      attemptLog.debug('attempt ended', { outcome, ms: Math.round(performance.now() - startedAt) });
      if (outcome === 'completed' || outcome === 'error' || outcome === 'pending') {
        publish({ type: 'result', ...about, status: outcome, code });
      }
      if (outcome === 'completed' || outcome === 'error') deps.onSettled();
      fillSoon();
    };
    // A delivery of ours that lapsed may come back to ourselves: the attempt before has lost its result to this one.
    held.get(job.id)?.stop.abort('claim_lost' satisfies StopReason);
    const entry: Held = { lane, job, claim: claimed, begun: () => begun, stop, done: run() };
    held.set(job.id, entry);
  };

  /** One statement for all held jobs of a queue. A job that it does not find any more has been given to another, or ended. */
  const beat = async (): Promise<undefined> => {
    for (const lane of [...lanes]) {
      const before = [...held.values()].filter((one) => one.lane === lane);
      if (before.length === 0) continue;
      const jobs = before.map(({ job }) => job);
      const alive = await touchJobs(boss, sql, lane.mode.queue, jobs);
      giveUp(before.filter(({ job }) => !alive.has(job.id)));
    }
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
    wake() {
      lookEverywhere = true;
      filling.wake();
    },
    check: () => watching.wake(),
    async stop(graceMs) {
      stopping = true;
      await filling.stop();
      await Promise.all(locked);
      const ended = Promise.all([...held.values()].map(({ done }) => done));
      // What waits for a slot others can begin now.
      for (const { stop, begun } of held.values()) if (!begun()) stop.abort('shutdown' satisfies StopReason);
      await Promise.race([ended, sleep(graceMs, undefined, { ref: false })]);
      for (const { stop } of held.values()) stop.abort('shutdown' satisfies StopReason);
      // What can't be handed back in this time, with the database away, is taken over when its heartbeat has lapsed.
      await Promise.race([ended, sleep(HAND_BACK_MS, undefined, { ref: false })]);
      await Promise.all([beating.stop(), watching.stop()]);
    },
  };
}
