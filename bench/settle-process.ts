import { connect } from '../src/db.ts';
import { createLogger } from '../src/log.ts';
import { MODES } from '../src/modes.ts';
import { startQueue } from '../src/queue.ts';
import { settleResult } from '../src/tasks/settle-result.ts';
import type { Settlement } from '../src/tasks/settlement.ts';
import type { TaskModeName } from '../src/tasks/task.ts';
import { createSettler } from '../src/workers/settler.ts';
import { limits } from '../test/support/fixtures.ts';

/** What a process is sent: settle these, so many at a time. */
export type SettleOrder = {
  settlements: Settlement[];
  mode: TaskModeName;
  /** As workers do, or each for itself. */
  inGroups: boolean;
  atOnce: number;
};

const CONNECTIONS = 10;

/** A process that settles what it is sent, and says when it is done. */
async function main(databaseUrl: string): Promise<void> {
  const sql = connect(databaseUrl, { max: CONNECTIONS, applicationName: 'bench-settle' });
  const log = createLogger({ level: 'error', write: () => {} });
  const boss = await startQueue({ databaseUrl, supervise: false, log });
  // Every connection is open before the clock runs.
  await Promise.all(Array.from({ length: CONNECTIONS }, () => sql`select pg_sleep(0.05)`));
  process.on('message', async ({ settlements, mode, inGroups, atOnce }: SettleOrder) => {
    const settle = inGroups
      ? createSettler({ sql, boss, limits, mode: MODES[mode] })
      : (one: Settlement) => settleResult(sql, boss, one, limits, MODES[mode]);
    let next = 0;
    const slot = async (): Promise<void> => {
      for (let one = settlements[next++]; one !== undefined; one = settlements[next++]) await settle(one);
    };
    await Promise.all(Array.from({ length: atOnce }, slot));
    process.send?.('done');
  });
  process.on('disconnect', () => process.exit(0));
  process.send?.('ready');
}

await main(process.env.DATABASE_URL ?? '');
