import { setTimeout as sleep } from 'node:timers/promises';
import type { Job, PgBoss } from 'pg-boss';
import { validate as isUuid, NIL } from 'uuid';
import { inTransaction, isDatabaseAway, type Sql } from '../db.ts';
import { CHILDREN } from '../fanout/count-children.ts';
import { addChunk, type ChunkOutcome } from '../fanout/expand-task.ts';
import { giveUpExpansion } from '../fanout/fail-task.ts';
import { type ManagerJob, returnManagerJob } from '../fanout/manager-queue.ts';
import { describeError, type Logger } from '../log.ts';
import { type Loop, startLoop } from '../loop.ts';
import { type JobLimits, MANAGER_QUEUE, on, touchJobs } from '../queue.ts';
import { analyzeAfterInsert } from '../tasks/analyze.ts';

export type ManagerDeps = {
  sql: Sql;
  boss: PgBoss;
  limits: JobLimits;
  /** How long an empty queue is left alone when nobody says that there is work. */
  pollIntervalMs: number;
  log: Logger;
  /** Documents of one transaction. Default 1000: some tens of milliseconds. */
  chunkSize?: number;
};

export type Manager = {
  /** There may be a task to expand. */
  wake(): void;
  /** Ends the chunk that it is at, and hands the rest back for others. */
  stop(): Promise<void>;
};

/** Tasks that one process expands at a time: a small one need not wait for a large one. */
const TASKS = 4;
/** Failures of one chunk in a row after which its task is given up. */
const TRIES = 5;
const TRY_DELAY_MS = 500;
/** Statistics are refreshed when a task has grown by this. */
const GROWTH = 4;

/**
 * Takes tasks from the managers' queue and makes their results, chunk by chunk. It waits for no child, and keeps nothing in
 * memory but the chunk that it is at: what has been done is in the database, so any manager can go on with any task.
 */
export function startManager(deps: ManagerDeps): Manager {
  const { sql, boss, log } = deps;
  const running = new Set<Promise<void>>();
  let stopping = false;

  const fill = async (): Promise<undefined> => {
    while (!stopping && running.size < TASKS) {
      const batchSize = TASKS - running.size;
      const jobs = await boss.fetch<ManagerJob>(MANAGER_QUEUE, { batchSize, ...on(sql) });
      for (const job of jobs) {
        const run = expand(deps, job, () => stopping)
          // What can't even be handed back is delivered again when its heartbeat has lapsed.
          .catch((error: unknown) => log.error('expansion broken off', { error: describeError(error) }))
          .finally(() => {
            running.delete(run);
            filling.wake();
          });
        running.add(run);
      }
      if (jobs.length < batchSize) return;
    }
  };

  const filling: Loop = startLoop({ name: 'taking tasks', intervalMs: deps.pollIntervalMs, step: fill, log });
  return {
    wake: () => filling.wake(),
    async stop() {
      stopping = true;
      await filling.stop();
      await Promise.all(running);
    },
  };
}

/** One task, until its results are all made, or somebody else is at it, or the process is told to stop. */
async function expand(deps: ManagerDeps, job: Job<ManagerJob>, isStopping: () => boolean): Promise<void> {
  const { sql, boss, limits, chunkSize = 1000 } = deps;
  // A stranger's payload names no task: nothing is found for it, and its job completed.
  const taskId = isUuid(job.data?.taskId) ? job.data.taskId : NIL;
  const log = deps.log.child({ taskId });
  let results = 0;
  let analyzeAt = 1;
  while (!isStopping()) {
    const alive = touchJobs(boss, sql, MANAGER_QUEUE, [job]);
    // Another manager has it: the heartbeat lapsed while this one was away. Not so at the first chunk, a moment after the fetch.
    if (results > 0 && !(await alive).has(job.id)) return;
    const [chunk] = await Promise.all([addPatiently(deps, { taskId, job, chunkSize }, log), alive]);
    if (chunk.outcome === 'ended') return;
    results += chunk.results;
    if (results >= analyzeAt) {
      analyzeAfterInsert(sql, boss, CHILDREN.queue, results);
      analyzeAt = results * GROWTH;
    }
    if (chunk.outcome === 'expanded') return log.info('task expanded', { results });
  }
  await inTransaction(sql, (tx) => returnManagerJob(boss, tx, { taskId, job }, limits));
}

/** Tries a chunk that fails a few times, and then gives the task up: a task that can't have its results must end as well. */
async function addPatiently(
  deps: ManagerDeps,
  options: { taskId: string; job: Job<ManagerJob>; chunkSize: number },
  log: Logger,
): Promise<ChunkOutcome> {
  const { sql, boss, limits } = deps;
  for (let tries = 1; ; tries++) {
    try {
      return await addChunk(sql, boss, options, limits);
    } catch (error) {
      // The task is not at fault. Its heartbeat lapses, and whoever reaches the database goes on.
      if (isDatabaseAway(error)) throw error;
      log.error('expansion failed', { tries, error: describeError(error) });
      if (tries === TRIES) {
        await giveUpExpansion(sql, boss, options);
        return { outcome: 'ended' };
      }
      await sleep(TRY_DELAY_MS * 2 ** tries * (0.5 + Math.random() / 2));
    }
  }
}
