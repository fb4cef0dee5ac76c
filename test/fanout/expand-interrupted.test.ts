import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from '../../src/db.ts';
import { addChunk } from '../../src/fanout/expand-task.ts';
import { giveUpExpansion } from '../../src/fanout/fail-task.ts';
import { FANOUT } from '../../src/fanout/fanout.ts';
import { CHILD_QUEUE } from '../../src/queue.ts';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { getTask } from '../../src/tasks/read-tasks.ts';
import { retryTask } from '../../src/tasks/retry-task.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import { sweepTasks } from '../../src/tasks/sweep-tasks.ts';
import { NO_LIMITS } from '../../src/tasks/task.ts';
import {
  addNext,
  makeExpandedTask,
  makeFanoutTask,
  managerJobs,
  readMade,
  readState,
  readTally,
  takeManagerJob,
} from '../support/fanout.ts';
import { limits, openTestBench, takeResult, takeResults, withMethod } from '../support/fixtures.ts';
import { untilBlocked } from '../support/waiting.ts';

const bench = { ...(await openTestBench(import.meta.url)), mode: FANOUT };
const { sql, boss, url } = bench;

test('a manager whose delivery was given to another fails nothing when it gives up', async () => {
  const { taskId } = await makeFanoutTask(bench, 12, { listed: true });
  const held = await takeManagerJob(bench);
  await addNext(bench, held);
  await sql`update pgboss.job set retry_count = retry_count + 1 where id = ${held.job.id}`;
  await giveUpExpansion(sql, boss, held);
  assert.equal((await readState(bench, taskId)).status, 'processing');
  const own = { ...held, job: { ...held.job, retryCount: held.job.retryCount + 1 } };
  await giveUpExpansion(sql, boss, own);
  const { status, statusReason, progress } = await readState(bench, taskId);
  assert.deepEqual([status, statusReason, progress.cancelled], ['failed', 'expansion_failed', 12]);
});

for (const broken of ['insert', 'complete'] as const) {
  test(`a chunk that breaks in ${broken} leaves nothing of itself, and the next manager goes on behind the last whole one`, async () => {
    const { taskId, documentIds } = await makeFanoutTask(bench, 10, { listed: true });
    const held = await takeManagerJob(bench);
    const chunkSize = broken === 'insert' ? 4 : 5;
    await addNext(bench, held, chunkSize);
    const queue = withMethod(boss, broken, () => Promise.reject(new Error('gone')));
    const before = await readMade(bench, taskId);
    await assert.rejects(addChunk(sql, queue, { ...held, chunkSize }, limits), /gone/);
    assert.deepEqual(await readMade(bench, taskId), before);
    while ((await addNext(bench, held, chunkSize)).outcome === 'added');
    const { rows, liveJobs } = await readMade(bench, taskId);
    assert.deepEqual(
      rows.map(({ documentId }) => documentId),
      documentIds,
    );
    assert.equal(liveJobs, 10);
    await boss.deleteAllJobs(CHILD_QUEUE);
  });
}

test('two managers at one task, as after a long silence of the first, take turns: one result and one job a document', async () => {
  const { taskId, documentIds } = await makeFanoutTask(bench, 200, { listed: true });
  const held = await takeManagerJob(bench);
  const run = async () => {
    while ((await addNext(bench, held, 7)).outcome === 'added');
  };
  await Promise.all([run(), run(), run()]);
  const { rows, liveJobs } = await readMade(bench, taskId);
  assert.deepEqual(
    rows.map(({ documentId }) => documentId),
    documentIds,
  );
  assert.equal(liveJobs, 200);
  assert.equal((await readTally(bench, taskId)).tally.expected, 200);
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('a manager that waits for another sees where that one has come to', async () => {
  const { taskId } = await makeFanoutTask(bench, 12, { listed: true });
  const held = await takeManagerJob(bench);
  const other = connect(url, { max: 1, applicationName: 'first-manager' });
  try {
    const first = await other.reserve();
    await first`begin`;
    await first`select 1 from asl_schema.extraction_task where id = ${taskId} for update`;
    const second = addNext(bench, held, 6);
    await untilBlocked(sql, 'extraction_task');
    await first`update asl_schema.fanout_expansion set next_position = 6, priority_base = 0 where task_id = ${taskId}`;
    await first`commit`;
    first.release();
    assert.deepEqual(await second, { outcome: 'expanded', results: 6 });
    assert.equal((await readMade(bench, taskId)).rows.length, 6);
  } finally {
    await other.end();
  }
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('a cancel while results are made ends the task; what was never made counts as cancelled, and a retry goes on with it', async () => {
  const { taskId, documentIds } = await makeFanoutTask(bench, 10, { listed: true });
  const manager = await takeManagerJob(bench);
  await addNext(bench, manager, 4);
  const { claim, job } = await takeResult(bench);
  await settleResult(sql, boss, { ...claim, job, ending: { kind: 'completed', data: {} } }, limits, FANOUT);
  assert.deepEqual(await cancelTask(sql, boss, taskId), { outcome: 'cancelled', ended: 3 });
  assert.deepEqual(await addNext(bench, manager, 4), { outcome: 'ended' });
  const { status, expanding, progress } = await readState(bench, taskId);
  assert.deepEqual([status, expanding], ['cancelled', false]);
  assert.deepEqual(progress, {
    ...{ total: 10, success: 1, failed: 0, percent: 100, pending: 0, extracting: 0, cancelled: 9 },
  });
  assert.equal((await readMade(bench, taskId)).liveJobs, 0);

  const retried = await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits);
  assert.deepEqual(retried, { outcome: 'retried', retried: 3 });
  const next = await takeManagerJob(bench);
  while ((await addNext(bench, next, 4)).outcome === 'added');
  const { rows } = await readMade(bench, taskId);
  assert.deepEqual(
    rows.map(({ documentId }) => documentId),
    documentIds,
  );
  for (const one of await takeResults(bench, 9)) {
    const settlement = { ...one.claim, job: one.job, ending: { kind: 'completed', data: {} } as const };
    await settleResult(sql, boss, settlement, limits, FANOUT);
  }
  assert.equal((await readState(bench, taskId)).status, 'completed');
});

test('a retry of some results of a task that was cancelled while they were made goes on with the others as well', async () => {
  const { taskId } = await makeFanoutTask(bench, 10, { listed: true });
  const manager = await takeManagerJob(bench);
  await addNext(bench, manager, 4);
  await cancelTask(sql, boss, taskId);
  await addNext(bench, manager, 4);
  const [first] = await sql<{ id: string }[]>`
    select id from asl_schema.extraction_result where task_id = ${taskId} order by id limit 1`;
  const other = await makeExpandedTask(bench, 3);
  const request = { taskId, resultIds: [first?.id as string], limits: NO_LIMITS };
  assert.deepEqual(await retryTask(sql, boss, request, limits), { outcome: 'retried', retried: 1 });
  const next = await takeManagerJob(bench);
  while ((await addNext(bench, next, 4)).outcome === 'added');
  const { progress } = await readState(bench, taskId);
  assert.deepEqual([progress.total, progress.pending, progress.cancelled], [10, 7, 3]);
  // What is made now stands in line from the head of the queue as it is now, beside what came meanwhile.
  const served = (await takeResults(bench, 6)).map(({ claim }) => claim.taskId);
  assert.equal(served.filter((id) => id === other.taskId).length, 3);
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('a task that was cancelled before its manager came is made by a retry', async () => {
  const { taskId } = await makeFanoutTask(bench, 3);
  const first = await takeManagerJob(bench);
  await cancelTask(sql, boss, taskId);
  assert.deepEqual(await addNext(bench, first), { outcome: 'ended' });
  assert.deepEqual(await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits), {
    outcome: 'retried',
    retried: 0,
  });
  assert.deepEqual(await addNext(bench, await takeManagerJob(bench)), { outcome: 'expanded', results: 3 });
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('a retry of an open task whose results are still made has nothing to do', async () => {
  const { taskId } = await makeFanoutTask(bench, 3, { limits: { maxFailedCount: 2 } });
  assert.deepEqual(await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits), {
    outcome: 'retried',
    retried: 0,
  });
  assert.equal((await getTask(sql, taskId))?.maxFailedCount, 2);
  assert.equal((await managerJobs(bench, taskId)).length, 1);
  await addNext(bench, await takeManagerJob(bench));
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('what is not made by the deadline is made as an error that says so, and nobody is asked to read it', async () => {
  const deadlineAt = new Date(Date.now() + 60_000);
  const { taskId } = await makeFanoutTask(bench, 9, { listed: true, limits: { deadlineAt } });
  const held = await takeManagerJob(bench);
  await addNext(bench, held, 4);
  await sql`update asl_schema.extraction_task set deadline_at = now() - interval '1 second' where id = ${taskId}`;
  while ((await addNext(bench, held, 4)).outcome === 'added');
  const { rows, liveJobs } = await readMade(bench, taskId);
  assert.deepEqual(
    rows.map(({ status }) => status),
    [...Array(4).fill('pending'), ...Array(5).fill('error')],
  );
  assert.equal(liveJobs, 4);
  await sweepTasks(sql, boss, { mode: FANOUT, intervalMs: 0, staleAfterMs: 1_800_000, limit: 100, sweeper: 'test' });
  const { status, statusReason, progress } = await readState(bench, taskId);
  assert.deepEqual([status, statusReason, progress.failed], ['completed', 'deadline_exceeded', 9]);
  const { tally, rows: counted } = await readTally(bench, taskId);
  assert.deepEqual(tally, { ...counted, expected: 9 });
});

test('a task whose deadline passes before its manager comes closes with errors alone', async () => {
  const { taskId } = await makeFanoutTask(bench, 3, { limits: { deadlineAt: new Date(Date.now() + 60_000) } });
  await sql`update asl_schema.extraction_task set deadline_at = now() - interval '1 second' where id = ${taskId}`;
  await addNext(bench, await takeManagerJob(bench));
  const { status, statusReason, progress } = await readState(bench, taskId);
  assert.deepEqual([status, statusReason, progress.total, progress.failed], ['completed', 'deadline_exceeded', 3, 3]);
});
