import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { inTransaction, type Sql } from '../../src/db.ts';
import { closeComplete } from '../../src/fanout/count-children.ts';
import { FANOUT } from '../../src/fanout/fanout.ts';
import { CHILD_QUEUE, MANAGER_QUEUE, on } from '../../src/queue.ts';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { claimResults } from '../../src/tasks/claim-results.ts';
import { deleteTask } from '../../src/tasks/delete-task.ts';
import { retryTask } from '../../src/tasks/retry-task.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import type { Ending } from '../../src/tasks/settlement.ts';
import { sweepTasks } from '../../src/tasks/sweep-tasks.ts';
import { NO_LIMITS } from '../../src/tasks/task.ts';
import { makeExpandedTask, readState, readTally } from '../support/fanout.ts';
import {
  fetchDeliveries,
  type HeldClaim,
  lapseHeartbeat,
  limits,
  makeTask,
  openTestBench,
  takeResult,
  takeResults,
} from '../support/fixtures.ts';
import { untilBlocked } from '../support/waiting.ts';

const bench = { ...(await openTestBench(import.meta.url)), mode: FANOUT };
const { sql, boss } = bench;

beforeEach(async () => {
  await sql`delete from asl_schema.extraction_task`;
  for (const queue of [CHILD_QUEUE, MANAGER_QUEUE]) await boss.deleteAllJobs(queue);
});

const DONE: Ending = { kind: 'completed', data: {} };
const FAILED: Ending = { kind: 'error', code: 'pdf_invalid', message: 'Not a PDF.' };

function settle({ claim, job }: HeldClaim, ending: Ending, maxAttempts = limits.maxAttempts, queue = boss) {
  const { taskId, resultId, attempt } = claim;
  return settleResult(sql, queue, { taskId, resultId, attempt, job, ending }, { ...limits, maxAttempts }, FANOUT);
}

const round = (connection: Sql = sql) =>
  sweepTasks(connection, boss, { mode: FANOUT, intervalMs: 0, staleAfterMs: 1_800_000, limit: 100, sweeper: 'test' });

/** The counters, which must be what the rows say. */
async function counts(taskId: string) {
  const { tally, rows } = await readTally(bench, taskId);
  assert.deepEqual({ ...tally, expected: undefined }, { ...rows, expected: undefined });
  return [tally.success, tally.failed, tally.cancelled];
}

test('each settle counts once, at once, and the last one closes the task', async () => {
  const { taskId } = await makeExpandedTask(bench, 3);
  const held = await takeResults(bench, 3);
  const steps = [];
  for (const one of held) {
    await settle(one, DONE);
    steps.push([...(await counts(taskId)), (await readState(bench, taskId)).status]);
  }
  assert.deepEqual(steps, [
    [1, 0, 0, 'processing'],
    [2, 0, 0, 'processing'],
    [3, 0, 0, 'completed'],
  ]);
});

test('the last child closes its task on every path by which it may end', async (t) => {
  const paths: Record<string, (held: HeldClaim) => Promise<unknown>> = {
    'a success': (held) => settle(held, DONE),
    'a permanent error': (held) => settle(held, FAILED),
    'the last of its attempts': (held) => settle(held, { ...FAILED, kind: 'retry', delayMs: 0 }, 1),
    'a worker that died on its last attempt, seen by the claim of the next': async ({ job }) => {
      await lapseHeartbeat(bench, job.id);
      const [again] = await fetchDeliveries(bench, 1);
      const deliveries = [again?.delivery ?? assert.fail('no delivery')];
      const [outcome] = await claimResults(sql, { deliveries, worker: 'test', maxAttempts: 1, mode: FANOUT });
      assert.equal(outcome?.outcome, 'exhausted');
    },
    'a job that is gone': async ({ job }) => {
      await boss.deleteJob(CHILD_QUEUE, job.id, on(sql));
      await round();
    },
    'a silence of half an hour': async ({ claim }) => {
      await sql`
        update asl_schema.extraction_result set updated_at = now() - interval '1 hour' where id = ${claim.resultId}`;
      await round();
    },
    'the deadline of its task': async ({ claim }) => {
      await sql`
        update asl_schema.extraction_task set deadline_at = now() - interval '1 second' where id = ${claim.taskId}`;
      await round();
    },
  };
  for (const [path, end] of Object.entries(paths)) {
    await t.test(path, async () => {
      const { taskId } = await makeExpandedTask(bench, 2);
      const [first, last] = await takeResults(bench, 2);
      assert.ok(first && last);
      await settle(first, DONE);
      await end(last);
      const { status, progress } = await readState(bench, taskId);
      assert.deepEqual([status, progress.percent], ['completed', 100]);
      assert.deepEqual(await counts(taskId), path === 'a success' ? [2, 0, 0] : [1, 1, 0]);
      await sql`delete from asl_schema.extraction_task`;
    });
  }
});

test('a delivery that comes twice, a settle that comes late, and one said again count nothing', async () => {
  const { taskId } = await makeExpandedTask(bench, 2);
  const held = await takeResult(bench);
  await lapseHeartbeat(bench, held.job.id);
  const second = await takeResults(bench, 2);
  assert.equal(await settle(held, DONE), 'stale');
  assert.deepEqual(await counts(taskId), [0, 0, 0]);
  const again = second.find(({ claim }) => claim.resultId === held.claim.resultId) ?? assert.fail();
  assert.equal(await settle(again, DONE), 'completed');
  for (const late of [held, again]) assert.equal(await settle(late, FAILED), 'stale');
  assert.deepEqual(await counts(taskId), [1, 0, 0]);
  assert.equal((await readState(bench, taskId)).status, 'processing');
});

test('a transient error and a wait that a server asked for count nothing, and the result is claimed again', async () => {
  const { taskId } = await makeExpandedTask(bench, 1);
  for (const kind of ['retry', 'deferred', 'released'] as const) {
    const held = await takeResult(bench);
    assert.equal(await settle(held, { kind, code: 'busy', message: 'busy', delayMs: 0 }), 'pending');
    assert.deepEqual(await counts(taskId), [0, 0, 0]);
  }
  await settle(await takeResult(bench), DONE);
  assert.equal((await readState(bench, taskId)).status, 'completed');
});

test('a settle that breaks behind its row counts nothing', async () => {
  const { taskId } = await makeExpandedTask(bench, 1);
  const held = await takeResult(bench);
  const broken = new Proxy(boss, {
    get: (target, key) =>
      key === 'complete' ? () => Promise.reject(new Error('gone')) : Reflect.get(target, key, target),
  });
  await assert.rejects(settle(held, DONE, 4, broken), /gone/);
  assert.deepEqual(await counts(taskId), [0, 0, 0]);
  await settle(held, DONE);
  assert.deepEqual(await counts(taskId), [1, 0, 0]);
});

test('a hundred children that end in the same moment are counted exactly, close once, and none waits for a lock in vain', async () => {
  await sql.unsafe(`
    create table if not exists task_close (task_id uuid);
    create or replace function note_close() returns trigger language plpgsql as $$
    begin insert into task_close values (new.id); return null; end $$;
    create or replace trigger note_close after update on asl_schema.extraction_task for each row
      when (old.status = 'processing' and new.status <> 'processing') execute function note_close();`);
  const { taskId } = await makeExpandedTask(bench, 100);
  const held = await takeResults(bench, 100);
  const outcomes = await Promise.all(held.map((one, i) => settle(one, i % 4 === 0 ? FAILED : DONE)));
  assert.equal(outcomes.filter((outcome) => outcome === 'error').length, 25);
  assert.deepEqual(await counts(taskId), [75, 25, 0]);
  assert.equal((await readState(bench, taskId)).status, 'completed');
  assert.equal((await sql`select 1 from task_close where task_id = ${taskId}`).length, 1);
});

test('a settle waits for another of its task, and sees what that one has counted', async () => {
  const { taskId } = await makeExpandedTask(bench, 2);
  const [first, last] = await takeResults(bench, 2);
  assert.ok(first && last);
  const other = await sql.reserve();
  try {
    await other`begin`;
    await other`
      update asl_schema.extraction_result set status = 'completed', extracted_data = '{}', delivery = null, finished_at = now()
      where id = ${first.claim.resultId}`;
    await other`
      update asl_schema.fanout_tally set success_count = success_count + 1 where task_id = ${taskId}`;
    const settling = settle(last, DONE);
    await untilBlocked(sql, 'update asl_schema.fanout_tally');
    await other`commit`;
    assert.equal(await settling, 'completed');
  } finally {
    other.release();
  }
  assert.deepEqual(await counts(taskId), [2, 0, 0]);
  assert.equal((await readState(bench, taskId)).status, 'completed', 'the one that came last has closed it');
});

test('settles of other tasks do not wait for one that is held up', async () => {
  const one = await makeExpandedTask(bench, 1);
  const heldUp = await takeResult(bench);
  await makeExpandedTask(bench, 1);
  const free = await takeResult(bench);
  const other = await sql.reserve();
  try {
    await other`begin`;
    await other`select 1 from asl_schema.fanout_tally where task_id = ${one.taskId} for update`;
    const waiting = settle(heldUp, DONE);
    assert.equal(await settle(free, DONE), 'completed');
    await other`rollback`;
    assert.equal(await waiting, 'completed');
  } finally {
    other.release();
  }
});

test('a last child that meets a locked task does not wait for it; the next round closes the task', async () => {
  const { taskId } = await makeExpandedTask(bench, 1);
  const held = await takeResult(bench);
  const other = await sql.reserve();
  try {
    await other`begin`;
    await other`select 1 from asl_schema.extraction_task where id = ${taskId} for update`;
    assert.equal(await settle(held, DONE), 'completed');
    await other`rollback`;
  } finally {
    other.release();
  }
  assert.equal((await readState(bench, taskId)).status, 'processing');
  const outcome = await round();
  assert.deepEqual([outcome.outcome, 'closed' in outcome && outcome.closed], ['swept', 1]);
  assert.equal((await readState(bench, taskId)).status, 'completed');
});

test('a cancel and the last child at the same moment: one of them ends the task, and nobody is a deadlock’s victim', async () => {
  const { taskId } = await makeExpandedTask(bench, 2);
  const [first, last] = await takeResults(bench, 2);
  assert.ok(first && last);
  await settle(first, DONE);
  // Holds the last result, as a settle does that has just written its row.
  const child = await sql.reserve();
  try {
    await child`begin`;
    await child`select 1 from asl_schema.extraction_result where id = ${last.claim.resultId} for update`;
    const cancelling = cancelTask(sql, boss, taskId);
    await untilBlocked(sql, 'from asl_schema.extraction_result');
    await child`
      update asl_schema.extraction_result set status = 'completed', extracted_data = '{}', delivery = null, finished_at = now()
      where id = ${last.claim.resultId}`;
    await inChild(child, taskId);
    await child`commit`;
    assert.deepEqual(await cancelling, { outcome: 'cancelled', ended: 0 });
  } finally {
    child.release();
  }
  assert.deepEqual(await counts(taskId), [2, 0, 0]);
  assert.equal((await readState(bench, taskId)).status, 'cancelled');
});

/** What a settle does behind its row. */
async function inChild(child: Sql, taskId: string): Promise<void> {
  await FANOUT.count(child as never, [{ taskId, success: 1, failed: 0, cancelled: 0 }]);
}

test('a cancel counts what it ends, and the failure limit does', async () => {
  const cancelled = await makeExpandedTask(bench, 5);
  await settle(await takeResult(bench), FAILED);
  assert.deepEqual(await cancelTask(sql, boss, cancelled.taskId), { outcome: 'cancelled', ended: 4 });
  assert.deepEqual(await counts(cancelled.taskId), [0, 1, 4]);

  const failing = await makeExpandedTask(bench, 10, { limits: { maxFailedPercent: 10 } });
  await settle(await takeResult(bench), FAILED);
  await round();
  assert.equal((await readState(bench, failing.taskId)).status, 'processing');
  await settle(await takeResult(bench), FAILED);
  await round();
  const { status, statusReason } = await readState(bench, failing.taskId);
  assert.deepEqual([status, statusReason], ['cancelled', 'failure_threshold']);
  assert.deepEqual(await counts(failing.taskId), [0, 2, 8]);
});

test('a retry takes back what it puts back, of either kind, and the task closes once more', async () => {
  const { taskId, resultIds } = await makeExpandedTask(bench, 6);
  for (const ending of [DONE, FAILED, FAILED]) await settle(await takeResult(bench), ending);
  await cancelTask(sql, boss, taskId);
  assert.deepEqual(await counts(taskId), [1, 2, 3]);
  const some = { taskId, resultIds: resultIds.slice(1, 4), limits: NO_LIMITS };
  assert.deepEqual(await retryTask(sql, boss, some, limits), { outcome: 'retried', retried: 3 });
  assert.deepEqual(await counts(taskId), [1, 0, 2]);
  assert.equal((await readState(bench, taskId)).status, 'processing');
  for (const one of await takeResults(bench, 3)) await settle(one, DONE);
  assert.deepEqual(await counts(taskId), [4, 0, 2]);
  assert.equal((await readState(bench, taskId)).status, 'completed');
  assert.deepEqual(await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits), {
    ...{ outcome: 'retried', retried: 2 },
  });
  for (const one of await takeResults(bench, 2)) await settle(one, FAILED);
  assert.deepEqual(await counts(taskId), [4, 2, 0]);
  assert.equal((await readState(bench, taskId)).status, 'completed');
});

test('a retry between the look and the lock of a round keeps the task open', async () => {
  const { taskId } = await makeExpandedTask(bench, 1);
  const held = await takeResult(bench);
  const other = await sql.reserve();
  try {
    await other`begin`;
    await other`select 1 from asl_schema.extraction_task where id = ${taskId} for update`;
    await settle(held, FAILED);
    await other`commit`;
  } finally {
    other.release();
  }
  // Complete and open. The retry comes after the candidates were found.
  await inTransaction(sql, async (tx) => {
    const interrupted = new Proxy(tx, {
      apply(target, self, args) {
        const text = (args[0] as string[]).join('?');
        const run = () => Reflect.apply(target, self, args);
        if (!text.includes('update asl_schema.extraction_task')) return run();
        return (async () => {
          await sql`
            update asl_schema.fanout_tally set failed_count = 0 where task_id = ${taskId}`;
          return await run();
        })();
      },
    });
    assert.deepEqual(await closeComplete(interrupted, { limit: 10 }), []);
  });
  assert.equal((await readState(bench, taskId)).status, 'processing');
});

test('status is exact at every moment, from the counters', async () => {
  const { taskId } = await makeExpandedTask(bench, 7);
  const [a, b, c] = await takeResults(bench, 3);
  assert.ok(a && b && c);
  await settle(a, DONE);
  await settle(b, FAILED);
  assert.deepEqual((await readState(bench, taskId)).progress, {
    ...{ total: 7, success: 1, failed: 1, percent: 28, pending: 4, extracting: 1, cancelled: 0 },
  });
  const plan = await sql`
    explain (analyze, format json) select count(*) from asl_schema.extraction_result
    where task_id = ${taskId} and status = 'extracting'`;
  assert.ok(JSON.stringify(plan).includes('Index'), 'counts what is extracted by the index, and reads no other row');
});

test('neither mode touches the tasks of the other', async () => {
  const scatter = await makeTask({ ...bench, mode: undefined as never }, 1);
  await sql`update asl_schema.extraction_task set deadline_at = now() - interval '1 hour' where id = ${scatter.taskId}`;
  await sql`delete from pgboss.job where data ->> 'taskId' = ${scatter.taskId}`;
  const { taskId } = await makeExpandedTask(bench, 1);
  await round();
  const rows = await sql`select id, status from asl_schema.extraction_result order by task_id`;
  assert.ok(rows.every(({ status }) => status === 'pending'));
  await sweepTasks(sql, boss, { intervalMs: 0, staleAfterMs: 1000, limit: 100, sweeper: 'test' });
  assert.equal((await readState(bench, taskId)).progress.pending, 1);
  const [closed] = await sql`select status from asl_schema.extraction_task where id = ${scatter.taskId}`;
  assert.equal(closed?.status, 'completed');
});

test('a deleted task takes its tally and its list with it', async () => {
  const { taskId } = await makeExpandedTask(bench, 2, { listed: true });
  await cancelTask(sql, boss, taskId);
  assert.equal(await deleteTask(sql, taskId), 'deleted');
  for (const table of ['fanout_tally', 'fanout_expansion', 'extraction_result']) {
    assert.equal((await sql`select 1 from asl_schema.${sql(table)} where task_id = ${taskId}`).length, 0);
  }
});
