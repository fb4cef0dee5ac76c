import { type Db, type Job, PgBoss } from 'pg-boss';
import { v7 as uuidv7 } from 'uuid';
import { connect } from '../../src/db.ts';
import { countBenchResults, createBenchResult, type Item, SAVE_MANY, SAVE_ONE, toRows } from '../bench-result.ts';
import type { Client, ClientSettings, Contender } from './contender.ts';

const QUEUE = 'bench';
/** Batches at a time, which together hold as many items as there are slots. With 2 or 4 it did fewer items a second here. */
const BATCHES = 1;

/**
 * As its documentation begins (docs/api/workers.md): `work()` with a handler of one job, and `localConcurrency` for as many of
 * them as there are slots. It polls as often as it allows, each half second instead of each two. The result is an insert of
 * the handler's own, before pg-boss completes the job.
 */
export const pgBossPlain: Contender = {
  name: 'pg-boss, plain',
  form: 'plain',
  prepare: (databaseUrl) => prepare(databaseUrl, {}),
  openClient,
  async startWorker({ databaseUrl, slots, poolSize }, work) {
    const sql = connect(databaseUrl, { max: poolSize, applicationName: 'bench' });
    const boss = await start(databaseUrl, { max: poolSize });
    const options = { localConcurrency: slots, pollingIntervalSeconds: 0.5 };
    await boss.work<Item>(QUEUE, options, async ([job]) => {
      if (job === undefined) return;
      const answer = await work.run();
      await sql.unsafe(SAVE_ONE, [job.data.taskId, job.data.itemId, JSON.stringify(answer)], { prepare: true });
    });
    return async () => {
      await boss.stop({ graceful: true, timeout: 5000 });
      await sql.end();
    };
  },
};

/**
 * All that its documentation has for throughput: batches, fetched again at once while they come full (`burstWhenBatchFull`),
 * LISTEN/NOTIFY for the first one, and `transactional` workers, so that the results of a batch, one insert, and its completion
 * are one transaction. The batches together hold as many items as there are slots.
 */
export const pgBossTuned: Contender = {
  name: 'pg-boss, batches',
  form: 'tuned',
  prepare: (databaseUrl) => prepare(databaseUrl, { notify: true }),
  openClient,
  async startWorker({ databaseUrl, slots, poolSize }, work) {
    const boss = await start(databaseUrl, { max: poolSize, useListenNotify: true });
    const options = {
      localConcurrency: BATCHES,
      batchSize: Math.max(1, Math.floor(slots / BATCHES)),
      burstWhenBatchFull: true,
      pollingIntervalSeconds: 0.5,
      notifyPollingIntervalSeconds: 0.5,
      transactional: true,
    } as const;
    await boss.work(QUEUE, options, async (jobs: Job<Item>[], tx: Db) => {
      const finished = await Promise.all(jobs.map(async ({ data }) => ({ item: data, answer: await work.run() })));
      await tx.executeSql(SAVE_MANY, [toRows(finished)]);
    });
    return () => boss.stop({ graceful: true, timeout: 5000 });
  },
};

async function start(databaseUrl: string, options: { max: number; useListenNotify?: boolean }): Promise<PgBoss> {
  const boss = new PgBoss({ connectionString: databaseUrl, ...options });
  // Without a listener an error event ends the process.
  boss.on('error', (error) => process.stderr.write(`pg-boss: ${error.message}\n`));
  return await boss.start();
}

async function prepare(databaseUrl: string, queue: { notify?: boolean }): Promise<void> {
  await createBenchResult(databaseUrl);
  const boss = await start(databaseUrl, { max: 2 });
  // Of its own, which its documentation recommends for queues with many jobs, and which ours have.
  await boss.createQueue(QUEUE, { partition: true, ...queue });
  await boss.stop({ graceful: false });
}

async function openClient({ databaseUrl }: ClientSettings): Promise<Client> {
  const sql = connect(databaseUrl, { max: 2, applicationName: 'bench' });
  const boss = new PgBoss({ connectionString: databaseUrl, max: 2, supervise: false, schedule: false });
  boss.on('error', (error) => process.stderr.write(`pg-boss: ${error.message}\n`));
  await boss.start();
  return {
    async stage(count) {
      const taskId = uuidv7();
      const jobs = Array.from({ length: count }, () => ({ data: { taskId, itemId: uuidv7() } satisfies Item }));
      return async () => {
        await boss.insert(QUEUE, jobs);
        return taskId;
      };
    },
    countDone: (taskId) => countBenchResults(sql, taskId),
    async close() {
      await boss.stop({ graceful: false });
      await sql.end();
    },
  };
}
