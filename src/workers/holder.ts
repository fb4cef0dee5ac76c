import { setTimeout as sleep } from 'node:timers/promises';
import type { Job, PgBoss } from 'pg-boss';
import type { Sql } from '../db.ts';
import { createContentReader } from '../documents/content-reader.ts';
import { withLogEvents } from '../events/log-events.ts';
import type { TaskEvent } from '../events/task-event.ts';
import type { Logger } from '../log.ts';
import { startLoop } from '../loop.ts';
import { type ExtractJob, type JobLimits, touchJobs } from '../queue.ts';
import { checkClaims } from '../tasks/check-claims.ts';
import type { Claim } from '../tasks/claim-results.ts';
import type { Counting } from '../tasks/task-mode.ts';
import { createTemplateReader } from '../templates/template-reader.ts';
import { type AttemptDeps, runAttempt, type Settle, type StopReason } from './run-attempt.ts';
import type { Slots } from './slots.ts';

export type HolderDeps = AttemptDeps & {
  sql: Sql;
  boss: PgBoss;
  limits: JobLimits;
  slots: Slots;
  log: Logger;
  /** Called when a result has reached a terminal state. */
  onSettled: () => void;
  /** Told what becomes of each result, for those who look on. */
  publish: (event: TaskEvent) => void;
  /** Called when one has left. */
  onLeft: () => void;
};

/** Where a result comes from: who delivers it, and how it is settled. */
export type Source = { mode: Counting; settle: Settle };

/** The results in the hands of this process. */
export type Holder = {
  /** How many of them take up a place: all but those that are only being settled, of which so many do not count. */
  size(): number;
  /** Runs an attempt at a result that was claimed, from now to its settle. */
  hold(source: Source, job: Job<ExtractJob>, claim: Claim): void;
  /** Some task was cancelled or stopped: some of these may not be ours any more. */
  check(): void;
  /** Gives running attempts `graceMs` to end, then hands the rest back. What waits for a slot goes back at once. */
  stop(graceMs: number): Promise<void>;
};

type Held = {
  source: Source;
  job: Job<ExtractJob>;
  claim: Claim;
  /** Whether it has had a slot. */
  begun: () => boolean;
  stop: AbortController;
  done: Promise<void>;
};

/** What is settled needs no slot; but when the database is slow, a process must not go on and on with results in its hands. */
const SETTLING = 100;
/** The longest that handing back takes at a stop. */
const HAND_BACK_MS = 5000;
/** How soon an extraction hears that its result is no longer its own, when no word of it arrives. */
const WATCH_MS = 1000;

/**
 * Runs attempts, keeps their deliveries alive by heartbeats, and tells those that have lost their result to stop.
 */
export function createHolder(deps: HolderDeps): Holder {
  const { sql, boss, slots, log, publish, onSettled } = deps;
  const held = new Map<string, Held>();
  let settling = 0;
  const parts = {
    ...deps,
    noteWait: slots.noteWait,
    readTemplate: createTemplateReader(sql),
    readContent: createContentReader(sql),
  };

  const hold = (source: Source, job: Job<ExtractJob>, claimed: Claim): void => {
    const stop = new AbortController();
    const { taskId, resultId, attempt } = claimed;
    const about = { taskId, resultId, attempt };
    const attemptLog = withLogEvents(log.child(about), about, publish);
    publish({ type: 'result', ...about, status: 'extracting' });
    let begun = false;
    const enterSlot: Slots['enterWithin'] = async (ms, signal) => {
      const leave = await slots.enterWithin(ms, signal);
      begun = leave !== undefined;
      return leave;
    };
    const run = async (): Promise<void> => {
      const startedAt = performance.now();
      let code: string | undefined;
      const settle: Settle = async (settlement) => {
        code = 'code' in settlement.ending ? settlement.ending.code : undefined;
        settling += 1;
        deps.onLeft();
        try {
          return await source.settle(settlement);
        } finally {
          settling -= 1;
        }
      };
      const outcome = await runAttempt({ ...parts, settle, enterSlot }, claimed, job, stop.signal, attemptLog);
      if (held.get(job.id) === entry) held.delete(job.id);
      attemptLog.debug('attempt ended', { outcome, ms: Math.round(performance.now() - startedAt) });
      if (outcome === 'completed' || outcome === 'error' || outcome === 'pending') {
        publish({ type: 'result', ...about, status: outcome, code });
      }
      if (outcome === 'completed' || outcome === 'error') onSettled();
      deps.onLeft();
    };
    // A delivery of ours that lapsed may come back to ourselves: the attempt before has lost its result to this one.
    held.get(job.id)?.stop.abort('claim_lost' satisfies StopReason);
    const entry: Held = { source, job, claim: claimed, begun: () => begun, stop, done: run() };
    held.set(job.id, entry);
  };

  /** One statement for all held jobs of a queue. A job that it does not find any more has been given to another, or ended. */
  const beat = async (): Promise<undefined> => {
    for (const queue of new Set([...held.values()].map(({ source }) => source.mode.queue))) {
      const before = [...held.values()].filter(({ source }) => source.mode.queue === queue);
      const jobs = before.map(({ job }) => job);
      const alive = await touchJobs(boss, sql, queue, jobs);
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

  // Three beats fit into the time after which a silent delivery is given up.
  const beatMs = (deps.limits.heartbeatSeconds * 1000) / 3;
  const beating = startLoop({ name: 'heartbeat', intervalMs: beatMs, step: beat, log });
  const watching = startLoop({ name: 'watching claims', intervalMs: WATCH_MS, step: watch, log });

  return {
    size: () => held.size - Math.min(settling, SETTLING),
    hold,
    check: () => watching.wake(),
    async stop(graceMs) {
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
