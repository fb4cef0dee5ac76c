import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inTransaction } from '../../src/db.ts';
import { closeTasks } from '../../src/tasks/close-tasks.ts';
import { getTask } from '../../src/tasks/read-tasks.ts';
import { retryTask } from '../../src/tasks/retry-task.ts';
import { SCATTER } from '../../src/tasks/scatter.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import { NO_LIMITS } from '../../src/tasks/task.ts';
import { limits, makeTask, openTestBench, takeResult } from '../support/fixtures.ts';
import { openGate } from './model/gate.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss } = bench;
const gate = await openGate(bench, SCATTER);

const close = async (connection = sql) =>
  (await inTransaction(connection, (tx) => closeTasks(tx, { limit: 10 }))).length;

/** A task whose one result has failed, so that it could be closed. */
async function makeComplete(): Promise<string> {
  const { taskId } = await makeTask(bench, 1);
  const { claim, job } = await takeResult(bench);
  const { resultId, attempt } = claim;
  const ending = { kind: 'error', code: 'broken', message: 'broken' } as const;
  await settleResult(sql, boss, { taskId, resultId, attempt, job, ending }, limits);
  return taskId;
}

// The close sees the task complete, and is stopped at each row that it looks at; a retry is through before it goes on.
for (let row = 1; row <= 4; row++) {
  test(`results put back between a close's look and its lock keep the task open (stopped at row ${row})`, async () => {
    const taskId = await makeComplete();
    const [closed, retried] = await gate.overtake<unknown>(
      row,
      (held) => close(held),
      () => retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits),
    );
    assert.deepEqual(retried, { outcome: 'retried', retried: 1 });
    // Stopped late enough, the close is first, and the retry that waited for it opens the task again.
    assert.ok(closed === 0 || closed === 1);
    assert.equal((await getTask(sql, taskId))?.status, 'processing');
    assert.equal(await close(), 0);
    await sql`delete from asl_schema.extraction_task where id = ${taskId}`;
    await boss.deleteAllJobs();
  });
}

test('a task that another transaction holds is passed by, and closed the next time', async () => {
  const taskId = await makeComplete();
  const holder = await sql.reserve();
  try {
    await holder`begin`;
    await holder`select 1 from asl_schema.extraction_task where id = ${taskId} for update`;
    assert.equal(await close(), 0);
    await holder`rollback`;
  } finally {
    holder.release();
  }
  assert.equal(await close(), 1);
});
