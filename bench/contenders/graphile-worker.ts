import { Logger, makeWorkerUtils, run, type Task, WorkerPreset } from 'graphile-worker';
import { v7 as uuidv7 } from 'uuid';
import { connect } from '../../src/db.ts';
import {
  countBenchResults,
  createBatchWriter,
  createBenchResult,
  type Item,
  SAVE_MANY,
  SAVE_ONE,
} from '../bench-result.ts';
import type { Client, ClientSettings, Contender, WorkerSettings } from './contender.ts';

const TASK = 'bench';
const logger = new Logger(() => () => {});

/**
 * As its documentation begins: `run()` with a task list, `concurrentJobs` as many as there are slots, and the handler's own
 * insert through `helpers.query`, which is on the same pool.
 */
export const graphileWorkerPlain: Contender = {
  name: 'graphile-worker, plain',
  form: 'plain',
  prepare,
  openClient,
  startWorker: (settings, work) =>
    startRunner(settings, {}, async (payload, helpers) => {
      const { taskId, itemId } = payload as Item;
      const answer = await work.run();
      await helpers.query(SAVE_ONE, [taskId, itemId, JSON.stringify(answer)]);
    }),
};

/**
 * With what its page on performance (worker.graphile.org/docs/performance) measures its best figures with: a local queue of
 * 500 and completions in batches. Its handlers get one job each, so their results are gathered and inserted in groups.
 */
export const graphileWorkerTuned: Contender = {
  name: 'graphile-worker, batches',
  form: 'tuned',
  prepare,
  openClient,
  startWorker(settings, work) {
    let save: ReturnType<typeof createBatchWriter> | undefined;
    const batching = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
    return startRunner(settings, batching, async (payload, helpers) => {
      save ??= createBatchWriter((rows) => helpers.query(SAVE_MANY, [rows]));
      await save({ item: payload as Item, answer: await work.run() });
    });
  },
};

async function startRunner(
  { databaseUrl, slots, poolSize }: WorkerSettings,
  batching: GraphileConfig.WorkerOptions,
  task: Task,
): Promise<() => Promise<void>> {
  const worker = { connectionString: databaseUrl, concurrentJobs: slots, maxPoolSize: poolSize, logger, ...batching };
  const preset = { extends: [WorkerPreset], worker };
  const runner = await run({ preset, noHandleSignals: true, parsedCronItems: [], taskList: { [TASK]: task } });
  return () => runner.stop();
}

async function prepare(databaseUrl: string): Promise<void> {
  await createBenchResult(databaseUrl);
  const utils = await makeWorkerUtils({ connectionString: databaseUrl, logger });
  await utils.migrate();
  await utils.release();
}

/** Submits by `addJobs`, its one call for many jobs. */
async function openClient({ databaseUrl }: ClientSettings): Promise<Client> {
  const sql = connect(databaseUrl, { max: 2, applicationName: 'bench' });
  const utils = await makeWorkerUtils({ connectionString: databaseUrl, logger, maxPoolSize: 2 });
  return {
    async stage(count) {
      const taskId = uuidv7();
      const jobs = Array.from({ length: count }, () => ({
        identifier: TASK,
        payload: { taskId, itemId: uuidv7() } satisfies Item,
      }));
      return async () => {
        await utils.addJobs(jobs);
        return taskId;
      };
    },
    countDone: (taskId) => countBenchResults(sql, taskId),
    async close() {
      await utils.release();
      await sql.end();
    },
  };
}
