import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { connect } from '../../src/db.ts';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { taskProgress } from '../../src/tasks/task-progress.ts';
import { listenWake } from '../../src/wake.ts';
import { type Consumer, startConsumer } from '../../src/workers/consumer.ts';
import { deferred, hang, scriptedEngine } from '../support/engines.ts';
import { limits, makeTask, openTestBench, readResult, silent } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss, url } = bench;

const consumers: Consumer[] = [];
afterEach(async () => {
  await Promise.all(consumers.splice(0).map((consumer) => consumer.stop(0)));
});

/** A consumer on a pool of its own, as on another process, with one hanging extraction; resolves with its abort. */
function startHanging() {
  const aborted = deferred<unknown>();
  const engine = scriptedEngine((_, { signal }) => {
    signal.addEventListener('abort', () => aborted.resolve(signal.reason), { once: true });
    return hang(signal);
  });
  const consumer = startConsumer({
    sql: connect(url, { max: 3, applicationName: 'other-process' }),
    boss,
    engine,
    limits,
    slots: 1,
    pollIntervalMs: 50,
    extractionTimeoutMs: 60_000,
    retryDelayMs: 0,
    retryDelayMaxMs: 0,
    worker: 'other',
    log: silent,
    onSettled: () => {},
  });
  consumers.push(consumer);
  return { consumer, engine, aborted: aborted.promise };
}

for (const told of [true, false]) {
  test(`a cancel stops a running extraction on another process within 2 s, ${told ? 'by a word' : 'and without one'}`, async () => {
    const { taskId, resultIds } = await makeTask(bench, 1);
    const { consumer, engine, aborted } = startHanging();
    if (told) await listenWake(sql, 'asl_stopped', () => consumer.check());
    await until('the extraction', () => engine.running.now === 1);
    const startedAt = performance.now();
    await cancelTask(sql, boss, taskId);
    assert.equal(await aborted, 'claim_lost');
    assert.ok(performance.now() - startedAt < 2000);
    await until('the slot to be free', () => engine.running.now === 0);
    const state = await taskProgress(sql, taskId);
    assert.deepEqual([state?.status, state?.progress.cancelled], ['cancelled', 1]);
    const { row, attempts } = await readResult(sql, resultIds[0] as string);
    assert.deepEqual([row.status, attempts[0]?.outcome], ['cancelled', 'cancelled']);
  });
}
