import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PgBoss } from 'pg-boss';
import { connect } from '../../src/db.ts';
import { EXTRACT_QUEUE, on, touchJobs } from '../../src/queue.ts';
import { taskProgress } from '../../src/tasks/task-progress.ts';
import { startConsumer } from '../../src/workers/consumer.ts';
import { scriptedEngine } from '../support/engines.ts';
import { limits, makeTask, openTestBench, silent } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss, url } = bench;

test('fetches begin where the last one ended, and what comes in above meanwhile is not left behind', async () => {
  const bounds: (number | undefined)[] = [];
  const watched = new Proxy(boss, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key);
      if (typeof value !== 'function') return value;
      if (key !== 'fetch') return value.bind(target);
      return (...args: Parameters<PgBoss['fetch']>) => {
        bounds.push(args[1]?.maxPriority);
        return target.fetch(...args);
      };
    },
  });
  const { taskId, resultIds } = await makeTask(bench, 400);
  let runs = 0;
  const engine = scriptedEngine(async () => {
    // The last in line comes first from now on.
    if (++runs === 200) {
      await sql`
        update pgboss.job set priority = 1000
        where name = ${EXTRACT_QUEUE} and data ->> 'resultId' = ${resultIds.at(-1) as string}`;
    }
    return { data: {} };
  });
  const consumer = startConsumer({
    sql,
    boss: watched,
    engine,
    limits,
    slots: 4,
    pollIntervalMs: 60_000,
    extractionTimeoutMs: 60_000,
    retryDelayMs: 0,
    retryDelayMaxMs: 0,
    worker: 'test',
    log: silent,
    onSettled: () => {},
  });
  try {
    const all = async () => (await taskProgress(sql, taskId))?.progress.success === 400;
    await until('all are completed', all);
  } finally {
    await consumer.stop(0);
  }
  assert.ok(bounds.some((bound) => bound !== undefined && bound < 0));
  assert.equal(bounds[0], undefined);
  assert.equal(bounds.at(-1), undefined, 'an empty queue is known from its head');
});

test('jobs are touched and completed by their keys: the state is hidden from the planner', async () => {
  const statements: string[] = [];
  const own = connect(url, { max: 1, applicationName: 'take', onStatement: (text) => statements.push(text) });
  await makeTask(bench, 1);
  const [job] = await boss.fetch(EXTRACT_QUEUE, { batchSize: 1, ...on(sql) });
  assert.ok(job);
  assert.equal((await touchJobs(boss, own, EXTRACT_QUEUE, [job])).size, 1);
  await boss.complete(EXTRACT_QUEUE, job, null, on(own));
  await own.end();
  const updates = statements.filter((text) => text.includes('UPDATE pgboss'));
  assert.equal(updates.length, 2);
  for (const text of updates) {
    assert.match(text, /\(state = 'active'\) IS TRUE/);
    assert.doesNotMatch(text, /AND state = 'active'/);
  }
});
