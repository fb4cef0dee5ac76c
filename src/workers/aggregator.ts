import type { PgBoss } from 'pg-boss';
import type { Sql } from '../db.ts';
import { endSilentSessions } from '../end-silent-sessions.ts';
import type { Logger } from '../log.ts';
import { type Loop, startLoop } from '../loop.ts';
import { sweepTasks } from '../tasks/sweep-tasks.ts';
import type { TaskMode } from '../tasks/task-mode.ts';

export type AggregatorDeps = {
  /** Whose tasks it looks after. */
  mode: TaskMode;
  sql: Sql;
  boss: PgBoss;
  intervalMs: number;
  staleAfterMs: number;
  /** Names this process in the tick's row. */
  worker: string;
  log: Logger;
};

/** Rows that one round examines or changes of a kind. */
const ROUND_LIMIT = 5000;
/** Woken rounds are at least this far apart, so a burst of settles costs a few rounds. */
const MIN_INTERVAL_MS = 250;
/** How often sessions of stopped processes are looked for, and how long one must have been silent. */
const LOOK_MS = 10_000;
const SILENT_MS = 20_000;

/**
 * Runs the aggregator's rounds over the tasks of one mode: every `intervalMs` over all processes together, which is the
 * guarantee, and soon after a wake, which is a courtesy. A round that changed nothing logs nothing.
 *
 * A round looks at every open task. With tens of thousands of them it takes a tenth of a second; woken rounds then keep a
 * distance of four times that, so closing early never costs more than a fifth of one connection.
 */
export function startAggregator(deps: AggregatorDeps): Loop {
  const { mode, sql, boss, intervalMs, staleAfterMs, worker: sweeper } = deps;
  const log = deps.log.child({ mode: mode.name });
  let busySince: number | undefined;
  let notBefore = 0;
  let lookedAt = Number.NEGATIVE_INFINITY;

  const step = async (): Promise<number> => {
    const startedAt = performance.now();
    if (startedAt < notBefore) return notBefore - startedAt;
    const round = await sweepTasks(sql, boss, { mode, intervalMs, staleAfterMs, limit: ROUND_LIMIT, sweeper });
    notBefore = performance.now() + 4 * (performance.now() - startedAt);
    if (round.outcome !== 'not_due' && startedAt - lookedAt >= LOOK_MS) {
      lookedAt = startedAt;
      const silent = await endSilentSessions(sql, SILENT_MS);
      if (silent > 0) log.warn('sessions of stopped processes ended', { silent });
    }
    if (round.outcome === 'busy') {
      // Another process is in its round: it may have looked before the settle that woke this one.
      busySince ??= startedAt;
      if (startedAt - busySince > 3 * intervalMs) {
        log.warn('the aggregator round of another process does not end', { ms: Math.round(startedAt - busySince) });
      }
      return MIN_INTERVAL_MS;
    }
    busySince = undefined;
    const { stale, lostJobs, stopped, closed, dueInMs } = round;
    if (stale + lostJobs > 0) log.warn('results swept', { stale, lostJobs });
    if (stopped > 0) log.warn('tasks stopped before their end', { stopped });
    if (closed > 0) log.info('tasks closed', { closed });
    return dueInMs;
  };
  return startLoop({ name: 'aggregator', intervalMs, minIntervalMs: MIN_INTERVAL_MS, step, log });
}
