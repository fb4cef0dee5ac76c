import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { EXTRACT_QUEUE } from '../../src/queue.ts';
import { getTask } from '../../src/tasks/read-tasks.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import { type SweepOptions, sweepTasks } from '../../src/tasks/sweep-tasks.ts';
import { taskProgress } from '../../src/tasks/task-progress.ts';
import {
  type HeldClaim,
  limits,
  makeTask,
  openTestBench,
  readResult,
  takeResult,
  takeResults,
} from '../support/fixtures.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss } = bench;

const options: SweepOptions = { intervalMs: 0, staleAfterMs: 1_800_000, limit: 1000, sweeper: 'test' };
const sweep = (more: Partial<SweepOptions> = {}) => sweepTasks(sql, boss, { ...options, ...more });
const complete = ({ claim, job }: HeldClaim) => {
  const { taskId, resultId, attempt } = claim;
  return settleResult(sql, boss, { taskId, resultId, attempt, job, ending: { kind: 'completed', data: {} } }, limits);
};

// Each test has the queue and the open tasks to itself.
afterEach(async () => {
  await sql`delete from asl_schema.extraction_task`;
  await boss.deleteAllJobs(EXTRACT_QUEUE);
});

test('a result in work without a sign of life for half an hour becomes an error; younger and waiting ones stay', async () => {
  await makeTask(bench, 4);
  const [old, young] = await takeResults(bench, 2);
  assert.ok(old && young);
  const touched = (resultId: string, age: string) =>
    sql`update asl_schema.extraction_result set updated_at = now() - ${age}::interval where id = ${resultId}`;
  await touched(old.claim.resultId, '30 minutes 1 second');
  await touched(young.claim.resultId, '29 minutes 50 seconds');
  // Waiting in a long queue is no fault, however long.
  await sql`update asl_schema.extraction_result set updated_at = now() - interval '9 days' where status = 'pending'`;
  const untouched = await sql`select * from asl_schema.extraction_result where id <> ${old.claim.resultId} order by id`;

  const round = await sweep();
  assert.deepEqual(round, { outcome: 'swept', dueInMs: 0, stale: 1, lostJobs: 0, stopped: 0, closed: 0 });
  const { row, attempts } = await readResult(sql, old.claim.resultId);
  assert.deepEqual([row.status, row.error_code, row.failed_attempts], ['error', 'extraction_stalled', 1]);
  assert.deepEqual(
    attempts.map(({ outcome }) => outcome),
    ['lost'],
  );
  const after = await sql`select * from asl_schema.extraction_result where id <> ${old.claim.resultId} order by id`;
  assert.deepEqual([...after], [...untouched]);
  assert.equal(await complete(old), 'stale', 'the worker wakes up too late');
});

const losses: Record<string, (jobId: string) => Promise<unknown>> = {
  deleted: (jobId) => boss.deleteJob(EXTRACT_QUEUE, jobId),
  cancelled: (jobId) => boss.cancel(EXTRACT_QUEUE, jobId),
  'failed for good': (jobId) => sql`update pgboss.job set state = 'failed' where id = ${jobId}`,
  'completed by a stranger': (jobId) => sql`update pgboss.job set state = 'completed' where id = ${jobId}`,
};
for (const [what, lose] of Object.entries(losses)) {
  test(`results whose job was ${what} become errors, and their task closes`, async () => {
    const { taskId, resultIds } = await makeTask(bench, 3);
    const working = await takeResult(bench);
    const waiting = resultIds.find((id) => id !== working.claim.resultId) as string;
    const alive = resultIds.find((id) => id !== working.claim.resultId && id !== waiting) as string;
    const before = await readResult(sql, alive);
    for (const resultId of [working.claim.resultId, waiting]) {
      await lose((await readResult(sql, resultId)).row.job_id);
    }
    assert.deepEqual(await sweep(), { outcome: 'swept', dueInMs: 0, stale: 0, lostJobs: 2, stopped: 0, closed: 0 });
    for (const [resultId, failedAttempts] of [
      [working.claim.resultId, 1],
      [waiting, 0],
    ] as const) {
      const { row } = await readResult(sql, resultId);
      assert.deepEqual([row.status, row.error_code, row.failed_attempts], ['error', 'job_lost', failedAttempts]);
    }
    assert.deepEqual(
      (await readResult(sql, working.claim.resultId)).attempts.map((a) => a.outcome),
      ['lost'],
    );
    assert.deepEqual(await readResult(sql, alive), before);
    await complete(await takeResult(bench));
    const round = await sweep();
    assert.deepEqual([round.outcome, 'closed' in round && round.closed], ['swept', 1]);
    assert.equal((await getTask(sql, taskId))?.status, 'completed');
  });
}

test('a job that waits, runs, or waits for another delivery is not lost', async () => {
  await makeTask(bench, 3);
  const [, retrying] = await takeResults(bench, 2);
  assert.ok(retrying);
  await sql`update pgboss.job set state = 'retry' where id = ${retrying.job.id}`;
  assert.deepEqual(await sweep(), { outcome: 'swept', dueInMs: 0, stale: 0, lostJobs: 0, stopped: 0, closed: 0 });
});

test('the search for lost jobs goes through any number of waiting results a page a round, and starts over', async () => {
  const { resultIds } = await makeTask(bench, 7);
  const { resultIds: later } = await makeTask(bench, 4);
  const all = [...resultIds, ...later];
  const lost = [all[6], all[10]] as string[];
  for (const resultId of lost) await boss.deleteJob(EXTRACT_QUEUE, (await readResult(sql, resultId)).row.job_id);
  const found: number[] = [];
  for (let round = 0; round < 4; round++) {
    const swept = await sweep({ limit: 3 });
    assert.ok(swept.outcome === 'swept');
    found.push(swept.lostJobs);
  }
  // Eleven rows in pages of three: the seventh is in the third page, the eleventh in the fourth.
  assert.deepEqual(found, [0, 0, 1, 1]);
  // Over from the start: the first row is lost by now.
  await boss.deleteJob(EXTRACT_QUEUE, (await readResult(sql, all[0] as string)).row.job_id);
  const again = await sweep({ limit: 3 });
  assert.equal('lostJobs' in again && again.lostJobs, 1);
});

test('a lost result in work is found in every round, wherever the search for waiting ones stands', async () => {
  await makeTask(bench, 6);
  const held = await takeResults(bench, 6);
  const last = held.map(({ claim, job }) => ({ ...claim, job })).sort((a, b) => (a.resultId < b.resultId ? 1 : -1))[0];
  assert.ok(last);
  await boss.deleteJob(EXTRACT_QUEUE, last.job.id);
  const round = await sweep({ limit: 1 });
  assert.equal('lostJobs' in round && round.lostJobs, 1);
});

test('a result that changes hands while the sweep looks at it is left alone', async () => {
  await makeTask(bench, 1);
  const { claim, job } = await takeResult(bench);
  const { taskId, resultId, attempt } = claim;
  await boss.deleteJob(EXTRACT_QUEUE, job.id);
  const settling = await sql.reserve();
  try {
    // A sweep that could lock at once would take it: the row is lost. But a settle holds it, and the sweep passes by.
    await settling`begin`;
    await settling`
      update asl_schema.extraction_result set updated_at = now() where id = ${resultId} and attempt = ${attempt}`;
    const round = await sweep();
    assert.equal('lostJobs' in round && round.lostJobs, 0);
    await settling`rollback`;
  } finally {
    settling.release();
  }
  const { row } = await readResult(sql, resultId);
  assert.deepEqual([row.task_id, row.status], [taskId, 'extracting']);
  const round = await sweep();
  assert.equal('lostJobs' in round && round.lostJobs, 1, 'and finds it the next time');
});

test('a task closes when its last result ends, whether that was completed or an error, and not before', async () => {
  const { taskId } = await makeTask(bench, 3);
  for (const [left, ending] of [
    [2, { kind: 'completed', data: {} }],
    [1, { kind: 'error', code: 'broken', message: 'broken' }],
    [0, { kind: 'error', code: 'broken', message: 'broken' }],
  ] as const) {
    const { claim, job } = await takeResult(bench);
    const { resultId, attempt } = claim;
    await settleResult(sql, boss, { taskId, resultId, attempt, job, ending }, limits);
    const round = await sweep();
    assert.equal('closed' in round && round.closed, left === 0 ? 1 : 0);
    const task = await getTask(sql, taskId);
    assert.deepEqual(
      [task?.status, task?.completedAt !== null],
      left === 0 ? ['completed', true] : ['processing', false],
    );
  }
  assert.deepEqual((await taskProgress(sql, taskId))?.progress, {
    total: 3,
    success: 1,
    failed: 2,
    percent: 100,
    pending: 0,
    extracting: 0,
    cancelled: 0,
  });
});

test('a closed task is never closed again: its end does not move', async () => {
  const { taskId } = await makeTask(bench, 1);
  await complete(await takeResult(bench));
  await sweep();
  const before = await getTask(sql, taskId);
  assert.equal(before?.status, 'completed');
  const again = await sweep();
  assert.deepEqual([again.outcome, 'closed' in again && again.closed], ['swept', 0]);
  assert.deepEqual(await getTask(sql, taskId), before);
});

test('twenty processes that look at the same moment close a task once between them', async () => {
  await makeTask(bench, 20);
  await Promise.all((await takeResults(bench, 20)).map(complete));
  const rounds = await Promise.all(Array.from({ length: 20 }, () => sweep()));
  assert.equal(
    rounds.reduce((sum, round) => sum + ('closed' in round ? round.closed : 0), 0),
    1,
  );
});

test('one round at a time: while one is under way another process passes by', async () => {
  const other = await sql.reserve();
  try {
    await other`begin`;
    await other`select 1 from asl_schema.aggregator_tick for update`;
    assert.deepEqual(await sweep(), { outcome: 'busy' });
    await other`rollback`;
  } finally {
    other.release();
  }
  assert.equal((await sweep()).outcome, 'swept');
});

test('full rounds keep their distance over all processes; a round woken early only closes', async () => {
  await sweep();
  const { taskId } = await makeTask(bench, 2);
  const [done, stale] = await takeResults(bench, 2);
  assert.ok(done && stale);
  await complete(done);
  await sql`
    update asl_schema.extraction_result set updated_at = now() - interval '1 hour' where id = ${stale.claim.resultId}`;
  const early = await sweep({ intervalMs: 10_000 });
  assert.ok(early.outcome === 'not_due');
  assert.deepEqual([early.stale, early.lostJobs, early.closed], [0, 0, 0]);
  assert.ok(early.dueInMs > 5000 && early.dueInMs <= 10_000);

  await sql`update asl_schema.aggregator_tick set swept_at = now() - interval '11 seconds'`;
  const rounds = await Promise.all([1, 2, 3, 4].map(() => sweep({ intervalMs: 10_000 })));
  assert.equal(rounds.filter(({ outcome }) => outcome === 'swept').length, 1);
  assert.equal((await getTask(sql, taskId))?.status, 'completed');
});

test('an early round closes what has ended', async () => {
  await sweep();
  const { taskId } = await makeTask(bench, 1);
  await complete(await takeResult(bench));
  const early = await sweep({ intervalMs: 10_000 });
  assert.deepEqual([early.outcome, 'closed' in early && early.closed], ['not_due', 1]);
  assert.equal((await getTask(sql, taskId))?.status, 'completed');
});

test('counts add up at every moment while results are taken, settled and swept', async () => {
  const { taskId } = await makeTask(bench, 40);
  let running = true;
  const watch = (async () => {
    let looks = 0;
    while (running) {
      const state = await taskProgress(sql, taskId);
      assert.ok(state);
      const { total, success, failed, pending, extracting, cancelled, percent } = state.progress;
      assert.equal(success + failed + pending + extracting + cancelled, total);
      assert.equal(percent === 100, pending + extracting === 0);
      looks += 1;
    }
    return looks;
  })();
  await Promise.all(
    Array.from({ length: 4 }, async () => {
      for (let i = 0; i < 5; i++) {
        for (const held of await takeResults(bench, 2)) await complete(held);
        await sweep();
      }
    }),
  );
  running = false;
  assert.ok((await watch) > 10);
  await sweep();
  assert.equal((await getTask(sql, taskId))?.status, 'completed');
});
