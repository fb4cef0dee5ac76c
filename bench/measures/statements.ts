import type { PgBoss } from 'pg-boss';
import { migrateDatabase } from '../../scripts/migrate.ts';
import { connect } from '../../src/db.ts';
import { EXTRACT_QUEUE, type ExtractJob, on, startQueue } from '../../src/queue.ts';
import { type Claim, claimResults } from '../../src/tasks/claim-results.ts';
import { SCATTER } from '../../src/tasks/scatter.ts';
import { settleResults } from '../../src/tasks/settle-result.ts';
import { encodeSettlement } from '../../src/tasks/settlement.ts';
import { limits, silent, withMethod } from '../../test/support/fixtures.ts';
import { createDatabase, dropDatabase } from '../database.ts';
import { fillQueue, jobTable } from '../filled.ts';
import { round } from '../numbers.ts';
import type { Measure } from './measure.ts';

const GROUPS = [1, 10, 32, 100];
const COUNT = 6400;
const STEPS = ['fetch', 'claim', 'settle', 'of it complete'] as const;
const ENDING = { kind: 'completed', data: { title: { value: 'A title', status: 'found' } } } as const;

/** Where the time of a result goes, by how many are taken and settled together: on one connection, one after the other. */
export const statements: Measure = {
  name: 'statements',
  async take({ serverUrl }) {
    const url = await createDatabase(serverUrl, 'statements');
    await migrateDatabase(url);
    const sql = connect(url, { max: 1, applicationName: 'bench' });
    const boss = await startQueue({ databaseUrl: url, supervise: false, log: silent });
    const rows: string[][] = [];
    try {
      const jobs = await jobTable(sql);
      // The first round of each size makes its plans, and is not counted.
      for (const size of GROUPS.flatMap((group) => [group, group])) {
        const count = Math.min(COUNT, size * 200);
        await fillQueue(sql, { count, jobs });
        const spent = await workThrough(sql, boss, size, count);
        rows.push([String(size), ...STEPS.map((step) => `${round((1000 * (spent[step] ?? 0)) / count)} µs`)]);
      }
    } finally {
      await boss.stop({ graceful: false });
      await sql.end();
      await dropDatabase(url);
    }
    const title = 'Time of one result, by the size of its group: one connection, one statement after the other';
    const counted = rows.filter((_, i) => i % 2 === 1);
    return { tables: [{ title, columns: ['results in a group', ...STEPS], rows: counted }] };
  },
};

type Spent = Partial<Record<(typeof STEPS)[number], number>>;

/** Takes and settles all that waits; answers the milliseconds of each step. */
async function workThrough(sql: ReturnType<typeof connect>, boss: PgBoss, size: number, count: number): Promise<Spent> {
  const spent: Spent = {};
  const timed = async <T>(step: (typeof STEPS)[number], work: () => Promise<T>): Promise<T> => {
    const startedAt = performance.now();
    const answer = await work();
    spent[step] = (spent[step] ?? 0) + performance.now() - startedAt;
    return answer;
  };
  const complete = (...args: Parameters<PgBoss['complete']>) => timed('of it complete', () => boss.complete(...args));
  const watched = withMethod(boss, 'complete', complete as PgBoss['complete']);
  for (let done = 0; done < count; done += size) {
    const jobs = await timed('fetch', () => boss.fetch<ExtractJob>(EXTRACT_QUEUE, { batchSize: size, ...on(sql) }));
    const deliveries = jobs.map(({ id, retryCount, data }) => ({ ...data, jobId: id, delivery: retryCount }));
    const claims = await timed('claim', () => claimResults(sql, { deliveries, worker: 'bench', maxAttempts: 4 }));
    const settlements = jobs.map((job, i) => {
      const { taskId, resultId, attempt } = claims[i] as Claim;
      return encodeSettlement({ taskId, resultId, attempt, job, ending: ENDING });
    });
    await timed('settle', () => settleResults(sql, watched, settlements, limits, SCATTER));
  }
  return spent;
}
