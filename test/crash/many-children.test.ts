import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { after, test } from 'node:test';
import { makeFanoutTask, readTally } from '../support/fanout.ts';
import { openTestBench } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';
import { breaches, installAudit, isAtRest } from './audit.ts';
import { type CrashProcess, killAll, startCrashProcess } from './process.ts';

const bench = await openTestBench(import.meta.url);
const { sql, url } = bench;
await installAudit(sql);
after(killAll);

const CHILDREN = 10_000;
const all = { added: CHILDREN, expected: CHILDREN, success: CHILDREN, failed: 0, cancelled: 0 };

const startWorker = () => startCrashProcess(url, { env: { ROLES: 'worker', WORKER_SLOTS: '25' } });
const startAll = () =>
  Promise.all([startCrashProcess(url, { env: { ROLES: 'aggregator' } }), ...[1, 2, 3, 4].map(startWorker)]);

async function stopAll(processes: CrashProcess[]): Promise<void> {
  for (const process of processes) process.signal('SIGTERM');
  assert.deepEqual(new Set(await Promise.all(processes.map(({ ended }) => ended))), new Set([0]));
}

const untilSettled = (taskId: string, count: number): Promise<unknown> =>
  until(`${count} children`, async () => ((await readTally(bench, taskId)).tally.success as number) >= count, 120_000);

async function untilClosed(taskId: string): Promise<void> {
  const closed = () => sql`select 1 from asl_schema.extraction_task where id = ${taskId} and status = 'completed'`;
  await until('the task closed', async () => (await closed()).length > 0, 180_000);
}

/** All that any process or the server had to say of trouble, and how often the task was closed. */
async function readTrouble(taskId: string, processes: CrashProcess[]) {
  const [server] = await sql<{ deadlocks: number }[]>`
    select deadlocks::int from pg_stat_database where datname = current_database()`;
  const closes = await sql`select 1 from audit.task_change where task_id = ${taskId} and after = 'completed'`;
  const lines = processes.flatMap((process) => process.log().split('\n'));
  return {
    logged: lines.filter((line) => /"level":"(error|warn)"/.test(line)),
    deadlocks: server?.deadlocks,
    closes: closes.length,
  };
}

test('10,000 children over four processes are counted exactly, close their task once, and nobody waits in vain', async (t) => {
  const processes = await startAll();
  const { taskId } = await makeFanoutTask(bench, CHILDREN);
  const startedAtMs = Date.now();
  await sql.notify('asl_jobs', '');
  await untilClosed(taskId);
  const seconds = (Date.now() - startedAtMs) / 1000;
  t.diagnostic(`${CHILDREN} children in ${seconds.toFixed(1)} s, ${Math.round(CHILDREN / seconds)} a second`);
  assert.deepEqual((await readTally(bench, taskId)).tally, all);
  assert.ok(
    processes.slice(1).every(({ runs }) => runs.length > 0),
    'each process had its part',
  );
  assert.equal(
    processes.reduce((sum, { runs }) => sum + runs.length, 0),
    CHILDREN,
    'none was read twice',
  );
  await until('rest', () => isAtRest(sql), 60_000);
  assert.deepEqual(await breaches(sql), []);
  await stopAll(processes);
  assert.deepEqual(await readTrouble(taskId, processes), { logged: [], deadlocks: 0, closes: 1 });
});

test('workers that are killed in the midst of it, and started again, cost no child and no count', async (t) => {
  const processes = await startAll();
  const { taskId } = await makeFanoutTask(bench, CHILDREN);
  await sql.notify('asl_jobs', '');
  const [aggregator, ...workers] = processes;
  const moments = [randomInt(1, 4000), randomInt(4000, 8000)];
  for (const moment of moments) {
    await untilSettled(taskId, moment);
    const [victim] = workers.splice(randomInt(workers.length), 1);
    victim?.signal('SIGKILL');
    assert.equal(await victim?.ended, 'SIGKILL');
    const next = await startWorker();
    workers.push(next);
    processes.push(next);
  }
  await untilClosed(taskId);
  assert.deepEqual((await readTally(bench, taskId)).tally, all);
  const outcomes = await sql<{ outcome: string; count: number }[]>`
    select outcome, count(*)::int as count from asl_schema.extraction_attempt
    where task_id = ${taskId}
    group by outcome order by outcome`;
  t.diagnostic(`killed at ${moments}: ${outcomes.map(({ outcome, count }) => `${count} ${outcome}`).join(', ')}`);
  await until('rest', () => isAtRest(sql), 60_000);
  assert.deepEqual(await breaches(sql), []);
  await stopAll([aggregator as CrashProcess, ...workers]);
  assert.deepEqual(await readTrouble(taskId, processes), { logged: [], deadlocks: 0, closes: 1 });
});
