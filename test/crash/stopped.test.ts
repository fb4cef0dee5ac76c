import assert from 'node:assert/strict';
import { after, suite, test } from 'node:test';
import { startQueue } from '../../src/queue.ts';
import { openTestDatabase } from '../support/database.ts';
import { makeTask, silent, type TestBench } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';
import { breaches, installAudit } from './audit.ts';
import { killAll, startCrashProcess } from './process.ts';

/** A database for each test: a stopped process holds up others on its own, and the tests run at once. */
async function open(name: string): Promise<TestBench> {
  const database = await openTestDatabase(new URL(`${name}.test.ts`, import.meta.url).href);
  const boss = await startQueue({ databaseUrl: database.url, supervise: false, log: silent });
  after(() => boss.stop({ graceful: false }));
  await installAudit(database.sql);
  return { ...database, boss };
}
const worker = await open('stopped_worker');
const settling = await open('stopped_settle');
const aggregator = await open('stopped_aggregator');
const aggregatorInStatement = await open('stopped_in_statement');
after(killAll);

const WORKER = { ROLES: 'worker', LOG_LEVEL: 'debug' };
const closed = ({ sql }: TestBench, taskId: string) =>
  until(
    'the task closed',
    async () =>
      (await sql`select 1 from asl_schema.extraction_task where id = ${taskId} and status <> 'processing'`)[0],
    90_000,
  );
/** Every row of ours, whole. */
const everything = async ({ sql }: TestBench) =>
  await Promise.all([
    sql`select * from asl_schema.extraction_task order by id`,
    sql`select * from asl_schema.extraction_result order by id`,
    sql`select * from asl_schema.extraction_attempt order by result_id, attempt`,
  ]);

suite('processes that stop without a word, and wake up later', { concurrency: true }, () => {
  test('a worker stopped past its heartbeat wakes up when another has finished its paper and the task is closed: nothing changes', async () => {
    const { taskId } = await makeTask(worker, 3);
    const late = await startCrashProcess(worker.url, { env: { ...WORKER, WORKER_SLOTS: '1', ENGINE: 'linger:2000' } });
    await until('its extraction', () => late.runs.length > 0, 60_000);
    late.signal('SIGSTOP');
    const other = await startCrashProcess(worker.url);
    await closed(worker, taskId);
    const before = await everything(worker);
    assert.deepEqual(
      before[1].map((row) => [row.status, row.extracted_data.run.value.startsWith(`${other.pid}-`)]),
      Array(3).fill(['completed', true]),
    );
    const stoppedInMidWork = before[1].filter((row) => row.filename === late.runs[0]?.filename);
    assert.equal(stoppedInMidWork[0]?.attempt, 2);

    late.signal('SIGCONT');
    await until('its late settle', () => /"outcome":"(stale|abandoned)"/.test(late.log()), 60_000);
    late.signal('SIGTERM');
    assert.equal(await late.ended, 0);
    assert.deepEqual(await everything(worker), before);
    assert.deepEqual(await breaches(worker.sql), []);
  });

  test('a worker stopped in the midst of its settle loses its locks and its paper as if it were dead; waking it up changes nothing', async (t) => {
    const { taskId } = await makeTask(settling, 3);
    const late = await startCrashProcess(settling.url, {
      crashAt: { after: 'with told as', before: 'completed_on', by: 'SIGSTOP' },
      env: { ...WORKER, WORKER_SLOTS: '1' },
    });
    await until('its settle', () => late.killedAtMs() !== undefined, 60_000);
    await startCrashProcess(settling.url);
    await closed(settling, taskId);
    const before = await everything(settling);
    // One attempt was spent for the one that stopped, and none for those that met its lock.
    assert.deepEqual(
      before[1].map((row) => [row.status, row.failed_attempts <= 1]),
      Array(3).fill(['completed', true]),
    );
    const [taken] = await settling.sql<{ atMs: number }[]>`
      select extract(epoch from max(started_at))::float8 * 1000 as "atMs" from asl_schema.extraction_attempt`;
    const afterMs = (taken?.atMs ?? 0) - (late.killedAtMs() ?? 0);
    t.diagnostic(`taken over ${Math.round(afterMs)} ms after the stop`);
    assert.ok(afterMs < 30_000, `taken over after ${afterMs} ms`);
    late.signal('SIGCONT');
    await until('its late settle', () => /"outcome":"(stale|abandoned)"/.test(late.log()), 60_000);
    late.signal('SIGTERM');
    assert.equal(await late.ended, 0);
    assert.deepEqual(await everything(settling), before);
    assert.deepEqual(await breaches(settling.sql), []);
  });

  for (const [where, sent] of [
    ['between two statements of its round', false],
    ['in the midst of one', true],
  ] as const) {
    test(`an aggregator stopped ${where} keeps the others from closing tasks for half a minute, no longer`, async (t) => {
      const bench = sent ? aggregatorInStatement : aggregator;
      const { sql, url } = bench;
      const stopped = await startCrashProcess(url, {
        // A statement of the rounds over scatter tasks alone, with the tick in hand.
        crashAt: {
          ...{ after: 'from asl_schema.aggregator_tick', before: "t.mode = 'scatter'", by: 'SIGSTOP' },
          sent,
        },
        env: { ROLES: 'aggregator' },
      });
      await until('its round', () => stopped.killedAtMs() !== undefined, 60_000);
      const { taskId } = await makeTask(bench, 2);
      await startCrashProcess(url);
      await closed(bench, taskId);
      const [task] = await sql<{ atMs: number }[]>`
        select extract(epoch from completed_at)::float8 * 1000 as "atMs" from asl_schema.extraction_task where id = ${taskId}`;
      const afterMs = (task?.atMs ?? 0) - (stopped.killedAtMs() ?? 0);
      t.diagnostic(`closed ${Math.round(afterMs)} ms after the stop`);
      assert.ok(afterMs < 45_000, `closed after ${afterMs} ms`);
      const before = await everything(bench);
      stopped.signal('SIGCONT');
      await until('it found out', () => stopped.log().includes('aggregator failed'), 60_000);
      stopped.signal('SIGTERM');
      assert.equal(await stopped.ended, 0);
      assert.deepEqual(await everything(bench), before);
      assert.deepEqual(await breaches(sql), []);
    });
  }
});
