import assert from 'node:assert/strict';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { EXTRACT_QUEUE, on } from '../../src/queue.ts';
import { claimResults } from '../../src/tasks/claim-results.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import {
  fetchDeliveries,
  lapseHeartbeat,
  limits,
  makeTask,
  openTestBench,
  readResult,
  takeResult,
} from '../support/fixtures.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss } = bench;
const worker = 'test';
const maxAttempts = limits.maxAttempts;

test('a pending result is claimed, numbered, and begins a line of its history; the others stay as they were', async () => {
  const { taskId, resultIds } = await makeTask(bench, 3);
  const before = await Promise.all(resultIds.map((id) => readResult(sql, id)));
  const [fetched] = await fetchDeliveries(bench, 1);
  assert.ok(fetched);
  const [outcome] = await claimResults(sql, { deliveries: [fetched.delivery], worker, maxAttempts });
  assert.ok(outcome?.outcome === 'claimed');
  const claimed = resultIds.indexOf(outcome.resultId);
  const { row, attempts } = await readResult(sql, outcome.resultId);
  assert.deepEqual(
    [outcome.taskId, outcome.attempt, outcome.failedAttempts, outcome.storageKey, outcome.mediaType],
    [taskId, 1, 0, row.storage_key, 'text/plain'],
  );
  assert.deepEqual([row.status, row.attempt, row.delivery, row.finished_at], ['extracting', 1, 0, null]);
  assert.ok(row.started_at);
  assert.deepEqual(attempts, [{ attempt: 1, outcome: null, error_code: null, error_message: null }]);
  for (const [i, id] of resultIds.entries()) {
    if (i !== claimed) assert.deepEqual(await readResult(sql, id), before[i]);
  }
  await fetchDeliveries(bench, 10);
});

test('of two claims of one delivery at the same moment, one gets the result; the other hears that it is locked, then a phantom', async () => {
  const { resultIds } = await makeTask(bench, 1);
  const [fetched] = await fetchDeliveries(bench, 1);
  assert.ok(fetched);
  const options = { deliveries: [fetched.delivery], worker, maxAttempts };
  const first = await sql.reserve();
  try {
    await first`begin`;
    const [won] = await claimResults(first, options);
    const [meanwhile] = await claimResults(sql, options);
    await first`commit`;
    const [afterwards] = await claimResults(sql, options);
    assert.deepEqual([won?.outcome, meanwhile?.outcome, afterwards?.outcome], ['claimed', 'locked', 'phantom']);
  } finally {
    first.release();
  }
  const { row, attempts } = await readResult(sql, resultIds[0] as string);
  assert.deepEqual([row.attempt, attempts.length], [1, 1]);
});

test('a result in work is not taken by a second delivery of the same number', async () => {
  await makeTask(bench, 1);
  const held = await takeResult(bench);
  const { taskId, resultId } = held.claim;
  const before = await readResult(sql, resultId);
  const delivery = { taskId, resultId, jobId: held.job.id, delivery: held.job.retryCount };
  assert.deepEqual(await claimResults(sql, { deliveries: [delivery], worker, maxAttempts }), [
    { outcome: 'phantom', taskId, resultId },
  ]);
  assert.deepEqual(await readResult(sql, resultId), before);
});

test('a result in work is not taken by a higher delivery of another job', async () => {
  await makeTask(bench, 1);
  const { claim } = await takeResult(bench);
  const { taskId, resultId } = claim;
  const delivery = { taskId, resultId, jobId: uuidv7(), delivery: 7 };
  const [outcome] = await claimResults(sql, { deliveries: [delivery], worker, maxAttempts });
  assert.equal(outcome?.outcome, 'phantom');
});

test('a silent worker loses its result to the next delivery, and its history says that it was lost', async () => {
  await makeTask(bench, 1);
  const first = await takeResult(bench);
  await lapseHeartbeat(bench, first.job.id);
  const second = await takeResult(bench);
  assert.equal(second.job.id, first.job.id);
  assert.deepEqual(
    [second.claim.resultId, second.claim.attempt, second.claim.failedAttempts, second.job.retryCount],
    [first.claim.resultId, 2, 1, 1],
  );
  const { row, attempts } = await readResult(sql, first.claim.resultId);
  assert.deepEqual([row.status, row.attempt, row.failed_attempts, row.delivery], ['extracting', 2, 1, 1]);
  assert.deepEqual(
    attempts.map(({ attempt, outcome, error_code }) => ({ attempt, outcome, error_code })),
    [
      { attempt: 1, outcome: 'lost', error_code: 'worker_lost' },
      { attempt: 2, outcome: null, error_code: null },
    ],
  );
});

test('a paper that silences every worker ends as an error when its attempts are used up', async () => {
  await makeTask(bench, 1);
  const { claim, job } = await takeResult(bench, 2);
  await lapseHeartbeat(bench, job.id);
  await takeResult(bench, 3);
  await lapseHeartbeat(bench, job.id);
  const [fetched] = await fetchDeliveries(bench, 1);
  assert.ok(fetched);
  const { taskId, resultId } = claim;
  assert.deepEqual(await claimResults(sql, { deliveries: [fetched.delivery], worker, maxAttempts: 2 }), [
    { outcome: 'exhausted', taskId, resultId, attempt: 2 },
  ]);
  const { row, attempts } = await readResult(sql, resultId);
  assert.deepEqual([row.status, row.error_code, row.attempt, row.failed_attempts], ['error', 'worker_lost', 2, 2]);
  assert.deepEqual(
    attempts.map(({ outcome }) => outcome),
    ['lost', 'lost'],
  );
});

for (const status of ['completed', 'error', 'cancelled'] as const) {
  test(`a result that is ${status} is never claimed, whatever is delivered`, async () => {
    await makeTask(bench, 1);
    const { claim, job } = await takeResult(bench);
    const { taskId, resultId } = claim;
    await sql`
      update asl_schema.extraction_result
      set status = ${status},
          finished_at = now(),
          extracted_data = ${status === 'completed' ? sql.json({ kept: true }) : null},
          error_code = ${status === 'error' ? 'kept' : null}
      where id = ${resultId}`;
    const before = await readResult(sql, resultId);
    for (const delivery of [0, 1, 99]) {
      const deliveries = [{ taskId, resultId, jobId: job.id, delivery }];
      const [outcome] = await claimResults(sql, { deliveries, worker, maxAttempts });
      assert.equal(outcome?.outcome, 'phantom');
    }
    assert.deepEqual(await readResult(sql, resultId), before);
  });
}

test('a batch answers by position, with a phantom between two claims', async () => {
  await makeTask(bench, 2);
  const [a, b] = (await fetchDeliveries(bench, 2)).map(({ delivery }) => delivery);
  assert.ok(a && b);
  const stranger = { taskId: uuidv7(), resultId: uuidv7(), jobId: uuidv7(), delivery: 0 };
  const outcomes = await claimResults(sql, { deliveries: [b, stranger, a], worker, maxAttempts });
  assert.deepEqual(
    outcomes.map(({ outcome, resultId }) => ({ outcome, resultId })),
    [
      { outcome: 'claimed', resultId: b.resultId },
      { outcome: 'phantom', resultId: stranger.resultId },
      { outcome: 'claimed', resultId: a.resultId },
    ],
  );
});

test('a row that another transaction holds is passed by, told from a phantom, and holds up no other of its batch', async () => {
  await makeTask(bench, 2);
  const [a, b] = (await fetchDeliveries(bench, 2)).map(({ delivery }) => delivery);
  assert.ok(a && b);
  const locker = await sql.reserve();
  try {
    await locker`begin`;
    await locker`select 1 from asl_schema.extraction_result where id = ${a.resultId} for update`;
    const outcomes = await claimResults(sql, { deliveries: [a, b], worker, maxAttempts });
    assert.deepEqual(
      outcomes.map(({ outcome }) => outcome),
      ['locked', 'claimed'],
    );
    await locker`rollback`;
  } finally {
    locker.release();
  }
  const [again] = await claimResults(sql, { deliveries: [a], worker, maxAttempts });
  assert.equal(again?.outcome, 'claimed');
});

test('claims and settles never touch the row of the task', async () => {
  const { taskId } = await makeTask(bench, 3);
  const version = async () =>
    (await sql`select xmin::text, ctid::text from asl_schema.extraction_task where id = ${taskId}`)[0];
  const before = await version();
  const taken = [await takeResult(bench), await takeResult(bench), await takeResult(bench)] as const;
  const endings = [
    { kind: 'completed', data: { done: true } },
    { kind: 'error', code: 'broken', message: 'broken' },
    { kind: 'retry', code: 'later', message: 'later', delayMs: 60_000 },
  ] as const;
  for (const [i, { claim, job }] of taken.entries()) {
    const { resultId, attempt } = claim;
    await settleResult(
      sql,
      boss,
      { taskId, resultId, attempt, job, ending: endings[i] as (typeof endings)[0] },
      limits,
    );
  }
  assert.deepEqual(await version(), before);
});

test('a phantom delivery is completed and does not come again', async () => {
  await makeTask(bench, 1);
  const [fetched] = await fetchDeliveries(bench, 1);
  assert.ok(fetched);
  await boss.complete(EXTRACT_QUEUE, fetched.job, null, on(sql));
  assert.deepEqual(await fetchDeliveries(bench, 1), []);
});
