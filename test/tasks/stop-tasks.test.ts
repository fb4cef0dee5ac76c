import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { EXTRACT_QUEUE } from '../../src/queue.ts';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { checkClaims } from '../../src/tasks/check-claims.ts';
import { claimResults } from '../../src/tasks/claim-results.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { deleteExpiredTasks, deleteTask } from '../../src/tasks/delete-task.ts';
import { getTask } from '../../src/tasks/read-tasks.ts';
import { retryTask } from '../../src/tasks/retry-task.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import type { Ending } from '../../src/tasks/settlement.ts';
import { sweepTasks } from '../../src/tasks/sweep-tasks.ts';
import { NO_LIMITS, type TaskLimits } from '../../src/tasks/task.ts';
import { taskProgress } from '../../src/tasks/task-progress.ts';
import {
  fetchDeliveries,
  type HeldClaim,
  jobStates,
  limits,
  makeDocuments,
  makeTask,
  openTestBench,
  readResult,
  TRIAL_TEMPLATE_ID,
  takeResult,
  takeResults,
} from '../support/fixtures.ts';
import { untilBlocked } from '../support/waiting.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss } = bench;

afterEach(async () => {
  await sql`delete from asl_schema.extraction_task`;
  await boss.deleteAllJobs(EXTRACT_QUEUE);
});

const sweep = () => sweepTasks(sql, boss, { intervalMs: 0, staleAfterMs: 1_800_000, limit: 1000, sweeper: 'test' });

function settle({ claim, job }: HeldClaim, ending: Ending) {
  const { taskId, resultId, attempt } = claim;
  return settleResult(sql, boss, { taskId, resultId, attempt, job, ending }, limits);
}
const completed: Ending = { kind: 'completed', data: { kept: true } };
const failed: Ending = { kind: 'error', code: 'broken', message: 'broken' };

async function limitedTask(count: number, more: Partial<TaskLimits>): Promise<string> {
  const projectId = `limited-${uuidv7()}`;
  const documentIds = await makeDocuments(sql, projectId, count);
  const request = { projectId, templateId: TRIAL_TEMPLATE_ID, documentIds, idempotencyKey: null };
  const created = await createTask(sql, boss, { ...request, limits: { ...NO_LIMITS, ...more } }, limits);
  assert.ok(created.outcome === 'created');
  return created.task.taskId;
}

const stateOf = async (taskId: string) => {
  const state = await taskProgress(sql, taskId);
  assert.ok(state);
  const { success, failed: errors, pending, extracting, cancelled } = state.progress;
  return { status: state.status, reason: state.statusReason, success, errors, pending, extracting, cancelled };
};
const liveJobs = async () =>
  (await sql`select 1 from pgboss.job where name = ${EXTRACT_QUEUE} and state in ('created', 'retry', 'active')`)
    .length;

test('a cancel ends what waits and what runs, keeps what has finished, and its counts are final', async () => {
  const { taskId } = await makeTask(bench, 6);
  const [done, broken, running] = await takeResults(bench, 3);
  assert.ok(done && broken && running);
  await settle(done, completed);
  await settle(broken, failed);
  assert.deepEqual(await cancelTask(sql, boss, taskId), { outcome: 'cancelled', ended: 4 });
  const after = {
    ...{ status: 'cancelled', reason: 'cancelled_by_user' },
    ...{ success: 1, errors: 1, pending: 0, extracting: 0, cancelled: 4 },
  };
  assert.deepEqual(await stateOf(taskId), after);
  assert.equal(await liveJobs(), 0);

  assert.deepEqual(await checkClaims(sql, [done.claim, running.claim]), new Set());
  assert.equal(await settle(running, completed), 'stale');
  assert.deepEqual(await fetchDeliveries(bench, 10), []);
  await sweep();
  assert.deepEqual(await stateOf(taskId), after);
  const { attempts } = await readResult(sql, running.claim.resultId);
  assert.deepEqual(attempts, [{ attempt: 1, outcome: 'cancelled', error_code: null, error_message: null }]);
});

test('a second cancel changes nothing; a task that has ended otherwise stays as it is', async () => {
  const { taskId } = await makeTask(bench, 2);
  await cancelTask(sql, boss, taskId);
  const before = await getTask(sql, taskId);
  assert.deepEqual(await cancelTask(sql, boss, taskId), { outcome: 'cancelled', ended: 0 });
  assert.deepEqual(await getTask(sql, taskId), before);

  const { taskId: closed } = await makeTask(bench, 1);
  await settle(await takeResult(bench), completed);
  await sweep();
  assert.deepEqual(await cancelTask(sql, boss, closed), { outcome: 'closed', status: 'completed' });
  assert.deepEqual(await cancelTask(sql, boss, uuidv7()), { outcome: 'unknown' });
});

test('a cancel and a settle at the same moment: the one that comes first counts, and the counts add up', async () => {
  const { taskId } = await makeTask(bench, 1);
  const held = await takeResult(bench);
  const settling = await sql.reserve();
  try {
    await settling`begin`;
    await settling`select 1 from asl_schema.extraction_result where id = ${held.claim.resultId} for update`;
    const cancelling = cancelTask(sql, boss, taskId);
    await untilBlocked(sql, ') unfinished');
    await settling`
      update asl_schema.extraction_result
      set status = 'completed', extracted_data = '{}', finished_at = now()
      where id = ${held.claim.resultId}`;
    await settling`commit`;
    assert.deepEqual(await cancelling, { outcome: 'cancelled', ended: 0 });
  } finally {
    settling.release();
  }
  assert.deepEqual(await stateOf(taskId), {
    ...{ status: 'cancelled', reason: 'cancelled_by_user' },
    ...{ success: 1, errors: 0, pending: 0, extracting: 0, cancelled: 0 },
  });
});

test('cancels, retries, claims, settles and rounds at once end without a deadlock that shows', async () => {
  const { taskId } = await makeTask(bench, 60);
  const outcomes = await Promise.allSettled([
    ...Array.from({ length: 6 }, async () => {
      const fetched = await fetchDeliveries(bench, 10);
      await Promise.all(
        fetched.map(async ({ job, delivery }) => {
          const [claim] = await claimResults(sql, { deliveries: [delivery], worker: 'test', maxAttempts: 4 });
          if (claim?.outcome === 'claimed') await settle({ job, claim }, completed);
        }),
      );
    }),
    cancelTask(sql, boss, taskId),
    retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits),
    cancelTask(sql, boss, taskId),
    sweep(),
    sweep(),
  ]);
  for (const outcome of outcomes)
    assert.equal(outcome.status, 'fulfilled', String((outcome as { reason?: unknown }).reason));
  await cancelTask(sql, boss, taskId);
  const state = await stateOf(taskId);
  assert.equal(state.success + state.cancelled, 60);
});

test('100,000 results are cancelled in seconds, and the task behind them starts at once', {
  timeout: 120_000,
}, async (t) => {
  const { taskId } = await makeTask(bench, 100_000);
  const startedAt = performance.now();
  assert.deepEqual(await cancelTask(sql, boss, taskId), { outcome: 'cancelled', ended: 100_000 });
  t.diagnostic(`cancelled 100,000 results in ${Math.round(performance.now() - startedAt)} ms`);
  const { resultIds } = await makeTask(bench, 1);
  const [first] = await fetchDeliveries(bench, 1);
  assert.equal(first?.delivery.resultId, resultIds[0]);
});

test('a retry puts back what failed or was cancelled, with all its attempts, and leaves the completed alone', async () => {
  const { taskId, resultIds } = await makeTask(bench, 4);
  const held = await takeResults(bench, 3);
  const [done, broken, other] = held as [HeldClaim, HeldClaim, HeldClaim];
  await settle(done, completed);
  await settle(broken, failed);
  await settle(other, failed);
  await cancelTask(sql, boss, taskId);
  const kept = await readResult(sql, done.claim.resultId);

  assert.deepEqual(await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits), {
    outcome: 'retried',
    retried: 3,
  });
  assert.deepEqual(await stateOf(taskId), {
    ...{ status: 'processing', reason: null },
    ...{ success: 1, errors: 0, pending: 3, extracting: 0, cancelled: 0 },
  });
  assert.equal((await getTask(sql, taskId))?.completedAt, null);
  assert.deepEqual(await readResult(sql, done.claim.resultId), kept);
  assert.equal(await liveJobs(), 3);
  const { row, attempts } = await readResult(sql, broken.claim.resultId);
  assert.deepEqual([row.attempt, row.failed_attempts, row.error_code], [1, 0, null]);
  assert.deepEqual(
    attempts.map(({ outcome, error_code }) => [outcome, error_code]),
    [['error', 'broken']],
  );

  for (const again of await takeResults(bench, 3)) {
    const before = again.claim.resultId === broken.claim.resultId || again.claim.resultId === other.claim.resultId;
    assert.equal(again.claim.attempt, before ? 2 : 1);
    await settle(again, completed);
  }
  await sweep();
  assert.deepEqual(await stateOf(taskId), {
    ...{ status: 'completed', reason: null },
    ...{ success: 4, errors: 0, pending: 0, extracting: 0, cancelled: 0 },
  });
  assert.equal(resultIds.length, 4);
});

test('a retry may name results; one that is no result of the task is refused, and nothing changes', async () => {
  const { taskId } = await makeTask(bench, 3);
  const held = await takeResults(bench, 3);
  for (const one of held) await settle(one, failed);
  await sweep();
  const before = await stateOf(taskId);
  const strangers = [uuidv7(), uuidv7()];
  const mine = held[0]?.claim.resultId as string;
  const refused = await retryTask(sql, boss, { taskId, resultIds: [mine, ...strangers], limits: NO_LIMITS }, limits);
  assert.deepEqual(refused, { outcome: 'unknown_results', count: 2, resultIds: strangers });
  assert.deepEqual(await stateOf(taskId), before);

  const one = await retryTask(sql, boss, { taskId, resultIds: [mine], limits: NO_LIMITS }, limits);
  assert.deepEqual(one, { outcome: 'retried', retried: 1 });
  assert.deepEqual(await jobStates(sql, mine), ['created']);
  const { status, errors, pending } = await stateOf(taskId);
  assert.deepEqual({ status, errors, pending }, { status: 'processing', errors: 2, pending: 1 });
});

test('without anything to retry a task stays closed', async () => {
  const { taskId } = await makeTask(bench, 1);
  await settle(await takeResult(bench), completed);
  await sweep();
  const before = await getTask(sql, taskId);
  const outcome = await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits);
  assert.deepEqual(outcome, { outcome: 'retried', retried: 0 });
  assert.deepEqual(await getTask(sql, taskId), before);
  assert.deepEqual(await retryTask(sql, boss, { taskId: uuidv7(), limits: NO_LIMITS }, limits), { outcome: 'unknown' });
});

test('a result that a sweep has ended can be retried although its old job still lives', async () => {
  const { taskId } = await makeTask(bench, 1);
  const held = await takeResult(bench);
  await sql`update asl_schema.extraction_result set updated_at = now() - interval '1 hour'`;
  await sweep();
  assert.equal((await stateOf(taskId)).errors, 1);
  assert.deepEqual(await jobStates(sql, held.claim.resultId), ['active']);
  await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits);
  assert.equal(await settle(held, completed), 'stale');
  await settle(await takeResult(bench), completed);
  await sweep();
  assert.equal((await stateOf(taskId)).status, 'completed');
});

test('what is unfinished at the deadline ends as an error that says so, and the task closes', async () => {
  const soon = await limitedTask(3, { deadlineAt: new Date(Date.now() + 3_600_000) });
  const later = await limitedTask(1, { deadlineAt: new Date(Date.now() + 7_200_000) });
  const held = (await takeResults(bench, 4)).filter(({ claim }) => claim.taskId === soon);
  const [done, running] = held as [HeldClaim, HeldClaim];
  await settle(done, completed);
  await sweep();
  assert.equal((await stateOf(soon)).status, 'processing', 'not before');

  await sql`update asl_schema.extraction_task set deadline_at = now() - interval '1 second' where id = ${soon}`;
  const round = await sweep();
  assert.deepEqual('stopped' in round && [round.stopped, round.closed], [1, 1]);
  assert.deepEqual(await stateOf(soon), {
    ...{ status: 'completed', reason: 'deadline_exceeded' },
    ...{ success: 1, errors: 2, pending: 0, extracting: 0, cancelled: 0 },
  });
  const { row, attempts } = await readResult(sql, running.claim.resultId);
  assert.deepEqual([row.error_code, attempts[0]?.outcome], ['deadline_exceeded', 'cancelled']);
  assert.equal(await settle(running, completed), 'stale');
  assert.equal((await stateOf(later)).status, 'processing');
});

test('a deadline that also takes a task over its limit of failures is still the reason that it ended', async () => {
  const deadlineAt = new Date(Date.now() + 3_600_000);
  const taskId = await limitedTask(3, { deadlineAt, maxFailedCount: 1 });
  await sql`update asl_schema.extraction_task set deadline_at = now() - interval '1 second' where id = ${taskId}`;
  await sweep();
  assert.deepEqual(await stateOf(taskId), {
    ...{ status: 'completed', reason: 'deadline_exceeded' },
    ...{ success: 0, errors: 3, pending: 0, extracting: 0, cancelled: 0 },
  });
});

test('a task whose results have all ended before the deadline has met it, even if it closes after it', async () => {
  const taskId = await limitedTask(1, { deadlineAt: new Date(Date.now() + 3_600_000) });
  await settle(await takeResult(bench), completed);
  await sql`update asl_schema.extraction_task set deadline_at = now() - interval '1 second' where id = ${taskId}`;
  await sweep();
  const { status, reason } = await stateOf(taskId);
  assert.deepEqual({ status, reason }, { status: 'completed', reason: null });
});

for (const [what, more, allowed] of [
  ['a count', { maxFailedCount: 2 }, 2],
  ['a count of none', { maxFailedCount: 0 }, 0],
  ['a part', { maxFailedPercent: 25 }, 2],
  ['the smaller of both', { maxFailedCount: 5, maxFailedPercent: 12.5 }, 1],
] as const) {
  test(`a task with ${what} as its limit goes on up to it, and stops spending beyond`, async () => {
    const taskId = await limitedTask(8, more);
    for (let n = 0; n < allowed; n++) await settle(await takeResult(bench), failed);
    await sweep();
    assert.equal((await stateOf(taskId)).status, 'processing');
    const running = await takeResult(bench);
    await settle(await takeResult(bench), failed);
    const round = await sweepTasks(sql, boss, { intervalMs: 10_000, staleAfterMs: 1e9, limit: 100, sweeper: 'test' });
    assert.equal('stopped' in round && round.stopped, 1, 'also in a round woken early');
    assert.deepEqual(await stateOf(taskId), {
      ...{ status: 'cancelled', reason: 'failure_threshold' },
      ...{ success: 0, errors: allowed + 1, pending: 0, extracting: 0, cancelled: 7 - allowed },
    });
    assert.equal(await settle(running, completed), 'stale');
    assert.equal(await liveJobs(), 0);
  });
}

test('a retry lifts deadline and failure limit, unless it brings new ones', async () => {
  const taskId = await limitedTask(2, { maxFailedCount: 0 });
  await settle(await takeResult(bench), failed);
  await sweep();
  assert.equal((await stateOf(taskId)).reason, 'failure_threshold');
  const deadlineAt = new Date(Date.now() + 60_000);
  await retryTask(sql, boss, { taskId, limits: { deadlineAt, maxFailedCount: 1, maxFailedPercent: null } }, limits);
  const task = await getTask(sql, taskId);
  assert.deepEqual(
    [task?.status, task?.statusReason, task?.deadlineAt, task?.maxFailedCount],
    ['processing', null, deadlineAt, 1],
  );
});

test('a closed task is deleted with all that belongs to it, and its key is free; an open one is not', async () => {
  const documentIds = await makeDocuments(sql, 'deleted', 2);
  const request = { projectId: 'deleted', templateId: TRIAL_TEMPLATE_ID, documentIds, idempotencyKey: 'deleted-1' };
  const first = await createTask(sql, boss, request, limits);
  assert.ok(first.outcome === 'created');
  const { taskId } = first.task;
  const running = await takeResult(bench);
  assert.equal(await deleteTask(sql, taskId), 'open');
  await cancelTask(sql, boss, taskId);
  assert.equal(await deleteTask(sql, taskId), 'deleted');
  assert.equal(await deleteTask(sql, taskId), 'unknown');
  for (const table of ['extraction_result', 'extraction_attempt']) {
    assert.equal((await sql`select 1 from ${sql(`asl_schema.${table}`)} where task_id = ${taskId}`).length, 0);
  }
  assert.equal(await settle(running, completed), 'stale');
  assert.equal((await createTask(sql, boss, request, limits)).outcome, 'created');
});

test('retention takes closed tasks of age, oldest first and in chunks, and never an open one', async () => {
  const ages = [40, 31, 29, 35];
  const closed: string[] = [];
  for (const age of ages) {
    const { taskId } = await makeTask(bench, 3);
    await cancelTask(sql, boss, taskId);
    await sql`
      update asl_schema.extraction_task set completed_at = now() - make_interval(days => ${age}) where id = ${taskId}`;
    closed.push(taskId);
  }
  const { taskId: open } = await makeTask(bench, 3);
  await sql`update asl_schema.extraction_task set created_at = now() - interval '90 days' where id = ${open}`;
  const left = async () => {
    const rows = await sql<{ id: string }[]>`select id from asl_schema.extraction_task order by id`;
    return rows.map((row) => row.id);
  };
  const options = { retentionMs: 30 * 86_400_000, maxResults: 5 };
  assert.equal(await deleteExpiredTasks(sql, options), 1);
  assert.deepEqual(await left(), [closed[1], closed[2], closed[3], open]);
  assert.equal(await deleteExpiredTasks(sql, { ...options, maxResults: 6 }), 2);
  assert.deepEqual(await left(), [closed[2], open]);
  assert.equal(await deleteExpiredTasks(sql, options), 0);
  assert.equal((await sql`select 1 from asl_schema.extraction_result where task_id = any(${closed})`).length, 3);
});
