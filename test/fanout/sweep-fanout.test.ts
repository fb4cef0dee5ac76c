import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { FANOUT } from '../../src/fanout/fanout.ts';
import { hasManager } from '../../src/fanout/manager-queue.ts';
import { sweepFanoutTasks } from '../../src/fanout/sweep-fanout.ts';
import { CHILD_QUEUE, MANAGER_QUEUE, on, SWEEPER_QUEUE, startQueue } from '../../src/queue.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import type { Ending } from '../../src/tasks/settlement.ts';
import { sweepTasks } from '../../src/tasks/sweep-tasks.ts';
import { startFanoutSweeper } from '../../src/workers/fanout-sweeper.ts';
import { addNext, makeExpandedTask, makeFanoutTask, readState, readTally, takeManagerJob } from '../support/fanout.ts';
import {
  type HeldClaim,
  limits,
  makeTask,
  openTestBench,
  silent,
  takeResult,
  takeResults,
} from '../support/fixtures.ts';
import { until, untilBlocked } from '../support/waiting.ts';

const bench = { ...(await openTestBench(import.meta.url)), mode: FANOUT };
const { sql, boss, url } = bench;
const IDLE_MS = 2 * 60 * 60 * 1000;
const sweep = () => sweepFanoutTasks(sql, boss, { idleMs: IDLE_MS });
const NOTHING = { repaired: 0, closed: 0, failed: 0 };

beforeEach(async () => {
  await sql`delete from asl_schema.extraction_task`;
  for (const queue of [CHILD_QUEUE, MANAGER_QUEUE]) await boss.deleteAllJobs(queue);
});

async function settle({ claim, job }: HeldClaim, ending: Ending = { kind: 'completed', data: {} }) {
  return await settleResult(sql, boss, { ...claim, job, ending }, limits, FANOUT);
}

/** Makes a task look as if nothing of it had moved for so long. */
async function age(taskId: string, by: string): Promise<void> {
  await sql`update asl_schema.fanout_tally set updated_at = now() - ${by}::interval where task_id = ${taskId}`;
  await sql`update asl_schema.extraction_result set updated_at = now() - ${by}::interval where task_id = ${taskId}`;
  await sql`update asl_schema.extraction_task set created_at = now() - ${by}::interval where id = ${taskId}`;
}

test('a tally that says something else than the rows is put right, in both directions', async () => {
  const { taskId } = await makeExpandedTask(bench, 4);
  const [a, b] = await takeResults(bench, 2);
  assert.ok(a && b);
  await settle(a);
  for (const wrong of [
    { success_count: 0 },
    { success_count: 3, failed_count: 1 },
    { added_count: 9, expected_count: 9 },
  ]) {
    await sql`update asl_schema.fanout_tally set ${sql(wrong)} where task_id = ${taskId}`;
    assert.deepEqual(await sweep(), { ...NOTHING, repaired: 1 });
    const { tally, rows } = await readTally(bench, taskId);
    assert.deepEqual(tally, { ...rows, expected: 4 });
  }
  assert.equal((await readState(bench, taskId)).status, 'processing', 'a repair closes nothing that is not complete');
  assert.deepEqual(await sweep(), NOTHING);
});

test('what has ended without being counted is counted, and closes its task instead of failing it', async () => {
  const { taskId } = await makeExpandedTask(bench, 2);
  const held = await takeResults(bench, 2);
  for (const one of held) await settle(one);
  await sql`
    update asl_schema.extraction_task set status = 'processing', completed_at = null where id = ${taskId}`;
  await sql`update asl_schema.fanout_tally set success_count = 1 where task_id = ${taskId}`;
  await age(taskId, '5 hours');
  assert.deepEqual(await sweep(), { repaired: 1, closed: 1, failed: 0 });
  const { status, progress } = await readState(bench, taskId);
  assert.deepEqual([status, progress.success], ['completed', 2]);
});

test('a task in which nothing has moved for two hours, and nothing is left that could, fails; what it leaves is cancelled', async () => {
  const { taskId } = await makeExpandedTask(bench, 3);
  await settle(await takeResult(bench));
  const running = await takeResult(bench);
  await boss.deleteAllJobs(CHILD_QUEUE);
  await age(taskId, '121 minutes');
  assert.deepEqual(await sweep(), { ...NOTHING, failed: 1 });
  const { status, statusReason, progress } = await readState(bench, taskId);
  assert.deepEqual([status, statusReason], ['failed', 'no_progress']);
  assert.deepEqual([progress.success, progress.cancelled, progress.percent], [1, 2, 100]);
  assert.equal(await settle(running), 'stale', 'a child that was forgotten counts into no closed task');
  const { tally, rows } = await readTally(bench, taskId);
  assert.deepEqual(tally, { ...rows, expected: 3 });
});

test('a task lives as long as anything of it does, however old it is', async (t) => {
  const dead = async () => {
    const { taskId } = await makeExpandedTask(bench, 2);
    await boss.deleteAllJobs(CHILD_QUEUE);
    await age(taskId, '3 days');
    return taskId;
  };
  const signs: Record<string, () => Promise<unknown>> = {
    'its children still wait in line': async () => {
      const { taskId } = await makeExpandedTask(bench, 2);
      await age(taskId, '3 days');
    },
    'a child is at work, and silent so far': async () => {
      const { taskId } = await makeExpandedTask(bench, 1);
      await takeResult(bench);
      await age(taskId, '3 days');
    },
    'a child waits for its next attempt': async () => {
      const { taskId } = await makeExpandedTask(bench, 1);
      const wait: Ending = { kind: 'deferred', code: 'busy', message: 'busy', delayMs: 10_000_000 };
      await settle(await takeResult(bench), wait);
      await age(taskId, '3 days');
    },
    'its manager has not come yet': async () => {
      const { taskId } = await makeFanoutTask(bench, 2);
      await age(taskId, '3 days');
    },
    'a child has ended lately': async () => {
      const taskId = await dead();
      await sql`
        update asl_schema.fanout_tally set updated_at = now() - interval '119 minutes' where task_id = ${taskId}`;
    },
    'a child was claimed lately': async () => {
      const taskId = await dead();
      await sql`
        update asl_schema.extraction_result set updated_at = now() - interval '119 minutes'
        where task_id = ${taskId} and id = (select max(id::text)::uuid from asl_schema.extraction_result where task_id = ${taskId})`;
    },
    'somebody is just changing it': async () => {
      const taskId = await dead();
      const other = await sql.reserve();
      await other`begin`;
      await other`select 1 from asl_schema.extraction_task where id = ${taskId} for update`;
      assert.deepEqual(await sweep(), NOTHING);
      await other`rollback`;
      other.release();
      await sql`delete from asl_schema.extraction_task`;
    },
  };
  for (const [sign, make] of Object.entries(signs)) {
    await t.test(sign, async () => {
      await make();
      assert.deepEqual(await sweep(), NOTHING);
      await sql`delete from asl_schema.extraction_task`;
      for (const queue of [CHILD_QUEUE, MANAGER_QUEUE]) await boss.deleteAllJobs(queue);
    });
  }
  await dead();
  assert.deepEqual(await sweep(), { ...NOTHING, failed: 1 });
});

test('tasks in scatter mode and closed ones are not looked at', async () => {
  const scatter = await makeTask({ ...bench, mode: undefined as never }, 1);
  await sql`delete from pgboss.job where data ->> 'taskId' = ${scatter.taskId}`;
  await sql`update asl_schema.extraction_result set updated_at = now() - interval '9 hours'`;
  const closed = await makeExpandedTask(bench, 1);
  await settle(await takeResult(bench));
  await sql`update asl_schema.fanout_tally set success_count = 0 where task_id = ${closed.taskId}`;
  assert.deepEqual(await sweep(), NOTHING);
});

test('a recount waits for no settle that has not come to the counter, and loses none that has', async () => {
  const { taskId } = await makeExpandedTask(bench, 40);
  const held = await takeResults(bench, 40);
  const sweeping = (async () => {
    const seen = [];
    for (let i = 0; i < 20; i++) seen.push((await sweep()).repaired);
    return seen;
  })();
  await Promise.all(held.map((one) => settle(one)));
  assert.ok((await sweeping).every((repaired) => repaired === 0));
  const { tally, rows } = await readTally(bench, taskId);
  assert.deepEqual(tally, { ...rows, expected: 40 });
  assert.equal((await readState(bench, taskId)).status, 'completed');
});

test('a recount waits for the settle that has the counter, also when it puts a wrong one right', async () => {
  const { taskId } = await makeExpandedTask(bench, 3);
  const { claim } = await takeResult(bench);
  await sql`update asl_schema.fanout_tally set failed_count = 1 where task_id = ${taskId}`;
  const child = await sql.reserve();
  try {
    await child`begin`;
    await child`
      update asl_schema.extraction_result set status = 'completed', extracted_data = '{}', delivery = null, finished_at = now()
      where id = ${claim.resultId}`;
    await child`update asl_schema.fanout_tally set success_count = success_count + 1 where task_id = ${taskId}`;
    const sweeping = sweep();
    await untilBlocked(sql, 'from asl_schema.fanout_tally');
    await child`commit`;
    assert.deepEqual(await sweeping, { ...NOTHING, repaired: 1 });
  } finally {
    child.release();
  }
  const { tally, rows } = await readTally(bench, taskId);
  assert.deepEqual(tally, { ...rows, expected: 3 });
});

test('a task whose manager is gone for good fails in the next round, and a retry gives it another', async (t) => {
  const gone: Record<string, (jobId: string) => Promise<unknown>> = {
    deleted: (jobId) => boss.deleteJob(MANAGER_QUEUE, jobId, on(sql)),
    cancelled: (jobId) => boss.cancel(MANAGER_QUEUE, jobId, on(sql)),
    'failed for good': (jobId) => sql`update pgboss.job set state = 'failed', completed_on = now() where id = ${jobId}`,
  };
  const round = () =>
    sweepTasks(sql, boss, { mode: FANOUT, intervalMs: 0, staleAfterMs: 1_800_000, limit: 100, sweeper: 'test' });
  for (const [how, lose] of Object.entries(gone)) {
    await t.test(how, async () => {
      const control = await makeFanoutTask(bench, 1);
      const controlJob = await takeManagerJob(bench);
      const { taskId } = await makeFanoutTask(bench, 20);
      const held = await takeManagerJob(bench);
      await addNext(bench, held);
      await round();
      assert.equal((await readState(bench, taskId)).status, 'processing');
      await lose(held.job.id);
      await round();
      const { status, statusReason, progress } = await readState(bench, taskId);
      assert.deepEqual([status, statusReason, progress.cancelled], ['failed', 'expansion_failed', 10]);
      assert.equal((await readState(bench, control.taskId)).status, 'processing');
      await addNext(bench, controlJob);
    });
  }
});

test('the sweeper is due every ten minutes, once for all processes, by the queue’s own schedule', async () => {
  const schedules = await boss.getSchedules(SWEEPER_QUEUE);
  assert.deepEqual(
    schedules.map(({ name, cron }) => [name, cron]),
    [[SWEEPER_QUEUE, '*/10 * * * *']],
  );
  const first = await boss.send(SWEEPER_QUEUE, {});
  assert.ok(first);
  assert.equal(await boss.send(SWEEPER_QUEUE, {}), null, 'one job is enough');

  const { taskId } = await makeExpandedTask(bench, 1);
  await sql`update asl_schema.fanout_tally set success_count = 1 where task_id = ${taskId}`;
  const worker = await startQueue({ databaseUrl: url, supervise: true, log: silent });
  const stop = await startFanoutSweeper({ sql, boss: worker, log: silent });
  await until('the job done', async () => {
    const [job] = await sql<{ state: string }[]>`select state::text from pgboss.job where id = ${first}`;
    return job?.state === 'completed';
  });
  await stop();
  await worker.stop({ graceful: false });
  const { tally, rows } = await readTally(bench, taskId);
  assert.deepEqual(tally, { ...rows, expected: 1 });
});

test('whether a task has a manager is one look into the index of live jobs, however many tasks wait for theirs', async () => {
  await sql`
    insert into pgboss.job (name, singleton_key, policy, data)
    select ${MANAGER_QUEUE}, 'manager-' || gen_random_uuid(), 'exclusive', '{}' from generate_series(1, 5000)`;
  await sql`analyze pgboss.job_common`;
  const { taskId } = await makeFanoutTask(bench, 1);
  const plan = await sql.begin(
    (tx) => tx`
      explain (format json)
      select ${hasManager(tx, 't.id')} from asl_schema.extraction_task t where t.id = ${taskId}::uuid`,
  );
  const text = JSON.stringify(plan);
  assert.match(text, /"Index Cond":"[^"]*COALESCE\(j?\.?singleton_key/i, text);
  assert.doesNotMatch(text, /Seq Scan[^}]*job_common/);
});
