import { migrateDatabase } from '../../scripts/migrate.ts';
import { connect, type Sql } from '../../src/db.ts';
import { EXTRACT_QUEUE, type ExtractJob, on, startQueue } from '../../src/queue.ts';
import { claimResults } from '../../src/tasks/claim-results.ts';
import { silent } from '../../test/support/fixtures.ts';
import { createDatabase, dropDatabase } from '../database.ts';
import { fillQueue, jobTable } from '../filled.ts';
import { median, milliseconds, percentile } from '../numbers.ts';
import { sayProgress } from '../report.ts';
import type { Measure } from './measure.ts';

const BATCH = 32;
const BATCHES = 100;

/** What taking work costs while very much of it waits: a fetch of 32 jobs, and the claim of their results. */
export const claims: Measure = {
  name: 'claims',
  async take({ serverUrl, form }) {
    const rows: string[][] = [];
    for (const queued of [10_000, form.name === 'full' ? 1_000_000 : 100_000]) {
      const databaseUrl = await createDatabase(serverUrl, 'claims');
      await migrateDatabase(databaseUrl);
      const sql = connect(databaseUrl, { max: 2, applicationName: 'bench' });
      try {
        sayProgress(`filling ${queued.toLocaleString('en')} jobs`);
        await fillQueue(sql, { count: queued, jobs: await jobTable(sql) });
        const { fetchMs, claimMs } = await takeBatches(sql, databaseUrl);
        const cells = [median(fetchMs), percentile(fetchMs, 99), median(claimMs), percentile(claimMs, 99)];
        rows.push([queued.toLocaleString('en'), ...cells.map(milliseconds)]);
      } finally {
        await sql.end();
        await dropDatabase(databaseUrl);
      }
    }
    const columns = ['jobs in the queue', 'fetch', 'p99', 'claim', 'p99'];
    return { tables: [{ title: `Taking ${BATCH} results from a full queue, ${BATCHES} times`, columns, rows }] };
  },
};

async function takeBatches(sql: Sql, databaseUrl: string): Promise<{ fetchMs: number[]; claimMs: number[] }> {
  const boss = await startQueue({ databaseUrl, supervise: false, log: silent });
  const fetchMs: number[] = [];
  const claimMs: number[] = [];
  for (let batch = 0; batch < BATCHES; batch++) {
    const startedAt = performance.now();
    const jobs = await boss.fetch<ExtractJob>(EXTRACT_QUEUE, { batchSize: BATCH, ...on(sql) });
    const fetchedAt = performance.now();
    const deliveries = jobs.map(({ id, retryCount, data }) => ({ ...data, jobId: id, delivery: retryCount }));
    const outcomes = await claimResults(sql, { deliveries, worker: 'bench', maxAttempts: 4 });
    claimMs.push(performance.now() - fetchedAt);
    fetchMs.push(fetchedAt - startedAt);
    if (outcomes.filter(({ outcome }) => outcome === 'claimed').length !== BATCH)
      throw new Error('not all were claimed');
  }
  await boss.stop({ graceful: false });
  return { fetchMs, claimMs };
}
