import type { PgBoss } from 'pg-boss';
import { inTransaction, type Sql } from '../db.ts';
import { announceTasks } from '../events/announce.ts';
import { mergeChanges } from './count-changes.ts';
import { SCATTER } from './scatter.ts';
import { stopFailingTasks, stopOverdueTasks } from './stop-tasks.ts';
import { sweepLostJobs, sweepStaleResults } from './sweep-results.ts';
import type { CountChange, TaskMode } from './task-mode.ts';

export type SweepOptions = {
  /** Whose tasks. Default scatter. */
  mode?: TaskMode;
  /** Least time between two full rounds, whichever processes run them. */
  intervalMs: number;
  /** An `extracting` row untouched for this long becomes an error. */
  staleAfterMs: number;
  /** How many rows one round examines for a lost job, and how many it changes in one kind of sweep. */
  limit: number;
  /** Who ran the round, for people who look. */
  sweeper: string;
};

export type SweepCounts = {
  /** Results that ended as errors. */
  stale: number;
  lostJobs: number;
  /** Tasks stopped by their deadline, by too many failures, or by a loss that nothing makes good; and tasks closed. */
  stopped: number;
  closed: number;
};

/**
 * - `busy`     another process is in its round at this moment
 * - `not_due`  the last full round is too recent; tasks that were to be stopped or closed have been all the same
 * - `swept`    a full round was done
 */
export type SweepOutcome =
  | { outcome: 'busy' }
  | ({ outcome: 'not_due' | 'swept' /** Until the next full round. */; dueInMs: number } & SweepCounts);

/**
 * One round of the aggregator over all open tasks of a mode: sweep what nobody will end any more, then close what has ended.
 *
 * The round is one transaction that holds the tick's row, so of any number of processes one does it, and a process that
 * dies in mid-round leaves nothing half done. Lock order, here and everywhere: tick, task, results by key, attempts, jobs,
 * tallies by task. Behind its tally, nobody waits for a result of a task that has open ones.
 */
export async function sweepTasks(sql: Sql, boss: PgBoss, options: SweepOptions): Promise<SweepOutcome> {
  const { mode = SCATTER, intervalMs, staleAfterMs, limit, sweeper } = options;
  return await inTransaction(sql, async (tx) => {
    const [tick] = await tx<{ sinceMs: number }[]>`
      select (extract(epoch from now() - swept_at) * 1000)::float8 as "sinceMs"
      from asl_schema.aggregator_tick
      where mode = ${mode.name}
      for update skip locked`;
    if (tick === undefined) return { outcome: 'busy' };
    const due = tick.sinceMs >= intervalMs;
    const swept: CountChange[] = [];
    const later: TaskMode = { ...mode, count: async (_, changes) => void swept.push(...changes) };
    const stale = due ? await sweepStaleResults(tx, { mode: later, staleAfterMs, limit }) : 0;
    const lostJobs = due ? await sweepLostJobs(tx, { mode: later, limit, sweeper }) : 0;
    const lostTasks = due ? ((await mode.sweep?.(tx, boss, { limit: TASKS_A_ROUND })) ?? 0) : 0;
    const overdue = await stopOverdueTasks(tx, boss, { mode, limit: TASKS_A_ROUND });
    const failing = await stopFailingTasks(tx, boss, { mode, limit: TASKS_A_ROUND });
    // Behind the stops, which wait for results in other hands: whoever settles one of those may be waiting for its counter.
    await mode.count(tx, mergeChanges(swept));
    const closed = await mode.close(tx, { limit });
    await announceTasks(tx, closed);
    const dueInMs = due ? intervalMs : intervalMs - tick.sinceMs;
    const counts = { stale, lostJobs, stopped: lostTasks + overdue + failing, closed: closed.length };
    return { outcome: due ? 'swept' : 'not_due', dueInMs, ...counts };
  });
}

/** Stopping a task may mean ending 100,000 results: a few tasks a round, and the next round goes on. */
const TASKS_A_ROUND = 10;
