import { createPostgresBackend, Queue, Worker, type WorkerOptions } from 'bullmq';
import { v7 as uuidv7 } from 'uuid';
import { connect, type Sql } from '../../src/db.ts';
import {
  countBenchResults,
  createBatchWriter,
  createBenchResult,
  type Finished,
  type Item,
  SAVE_MANY,
  SAVE_ONE,
} from '../bench-result.ts';
import type { Work } from '../work.ts';
import type { Client, ClientSettings, Contender, ContenderForm } from './contender.ts';

const QUEUE = 'bench';

/**
 * BullMQ on its PostgreSQL backend, as its guide (docs.bullmq.io/guide/postgresql) shows it: one `Worker` with a `concurrency`
 * of as many as there are slots, jobs by `addBulk`.
 *
 * Plain keeps completed jobs, which is the default, and each handler inserts its own result. Tuned follows the guide's tips:
 * a pool for the concurrency, and completed jobs removed; and results are gathered and inserted in groups. Batches of jobs
 * are a feature of its commercial edition.
 */
export function bullmqPostgres(form: Exclude<ContenderForm, 'ours'>): Contender {
  return {
    name: `BullMQ on PostgreSQL, ${form === 'plain' ? 'plain' : 'batches'}`,
    form,
    async prepare(databaseUrl) {
      await createBenchResult(databaseUrl);
      const queue = new Queue(
        QUEUE,
        { connection: { connectionString: databaseUrl, migrate: true } },
        createPostgresBackend,
      );
      await queue.waitUntilReady();
      await queue.close();
    },
    async openClient({ databaseUrl }) {
      const connection = { connectionString: databaseUrl, max: 2 };
      return await openClient(databaseUrl, new Queue(QUEUE, { connection }, createPostgresBackend));
    },
    async startWorker(settings, work) {
      const { databaseUrl, slots: concurrency, poolSize: max } = settings;
      const sql = connect(databaseUrl, { max, applicationName: 'bench' });
      const options = { connection: { connectionString: databaseUrl, max }, concurrency, ...retention(form) };
      const worker = new Worker(QUEUE, processor(form, sql, work), options, createPostgresBackend);
      return await started(worker, sql);
    },
  };
}

/**
 * The same on Redis, its home. The jobs are in Redis then, and the results in the same PostgreSQL as everybody's. Redis syncs
 * its log to the disk once a second (appendfsync everysec, what BullMQ's guide to production asks for): a crash of the machine
 * may lose the jobs of the last second, where PostgreSQL loses none.
 */
export function bullmqRedis(form: Exclude<ContenderForm, 'ours'>): Contender {
  return {
    name: `BullMQ on Redis, ${form === 'plain' ? 'plain' : 'batches'}`,
    form,
    needsRedis: true,
    prepare: createBenchResult,
    openClient: (settings) => openClient(settings.databaseUrl, new Queue(queueOf(form), redisConnection(settings))),
    async startWorker(settings, work) {
      const sql = connect(settings.databaseUrl, { max: settings.poolSize, applicationName: 'bench' });
      const options = { ...redisConnection(settings), concurrency: settings.slots, ...retention(form) };
      return await started(new Worker(queueOf(form), processor(form, sql, work), options), sql);
    },
  };
}

/** Both forms share one Redis. */
function queueOf(form: ContenderForm): string {
  return `${QUEUE}-${form}`;
}

function redisConnection({ redisUrl = '' }: ClientSettings): Pick<WorkerOptions, 'connection'> {
  // What its documentation demands of a worker's connection.
  return { connection: { url: redisUrl, maxRetriesPerRequest: null } };
}

function retention(form: ContenderForm): Pick<WorkerOptions, 'removeOnComplete'> {
  return form === 'tuned' ? { removeOnComplete: { count: 0 } } : {};
}

function processor(form: ContenderForm, sql: Sql, work: Work): (job: { data: Item }) => Promise<void> {
  const saveOne = ({ item, answer }: Finished) =>
    sql.unsafe(SAVE_ONE, [item.taskId, item.itemId, JSON.stringify(answer)], { prepare: true });
  const save =
    form === 'tuned' ? createBatchWriter((rows) => sql.unsafe(SAVE_MANY, [rows], { prepare: true })) : saveOne;
  return async (job) => void (await save({ item: job.data, answer: await work.run() }));
}

type Stoppable = {
  waitUntilReady(): Promise<unknown>;
  close(): Promise<void>;
  on(event: 'error', listener: (error: Error) => void): unknown;
};

async function started(worker: Stoppable, sql: Sql): Promise<() => Promise<void>> {
  worker.on('error', (error) => process.stderr.write(`BullMQ: ${error.message}\n`));
  await worker.waitUntilReady();
  return async () => {
    await worker.close();
    await sql.end();
  };
}

type BulkQueue = {
  addBulk(jobs: { name: string; data: Item }[]): Promise<unknown>;
  waitUntilReady(): Promise<unknown>;
  close(): Promise<void>;
};

async function openClient(databaseUrl: string, queue: BulkQueue): Promise<Client> {
  const sql = connect(databaseUrl, { max: 2, applicationName: 'bench' });
  await queue.waitUntilReady();
  return {
    async stage(count) {
      const taskId = uuidv7();
      const jobs = Array.from({ length: count }, () => ({ name: 'item', data: { taskId, itemId: uuidv7() } }));
      return async () => {
        await queue.addBulk(jobs);
        return taskId;
      };
    },
    countDone: (taskId) => countBenchResults(sql, taskId),
    async close() {
      await queue.close();
      await sql.end();
    },
  };
}
