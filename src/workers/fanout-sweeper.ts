import type { PgBoss } from 'pg-boss';
import type { Sql } from '../db.ts';
import { sweepFanoutTasks } from '../fanout/sweep-fanout.ts';
import { describeError, type Logger } from '../log.ts';
import { SWEEPER_QUEUE } from '../queue.ts';

/** No task moves for so long unless it is dead: the longest that any wait of ours takes is half an hour. */
const IDLE_MS = 2 * 60 * 60 * 1000;
const POLL_SECONDS = 10;

/**
 * Takes the jobs that pg-boss' schedule makes every ten minutes, one for all processes together, and sweeps once for each.
 * A sweep that fails is not repeated: the next is due soon enough. Answers how to stop it.
 */
export async function startFanoutSweeper(deps: { sql: Sql; boss: PgBoss; log: Logger }): Promise<() => Promise<void>> {
  const { sql, boss, log } = deps;
  await boss.work(SWEEPER_QUEUE, { pollingIntervalSeconds: POLL_SECONDS }, async () => {
    try {
      const { repaired, closed, failed } = await sweepFanoutTasks(sql, boss, { idleMs: IDLE_MS });
      if (repaired + closed + failed > 0) log.warn('fan-out tasks swept', { repaired, closed, failed });
    } catch (error) {
      log.error('sweeping fan-out tasks failed', { error: describeError(error) });
    }
  });
  return async () => {
    await boss.offWork(SWEEPER_QUEUE, { wait: true });
  };
}
