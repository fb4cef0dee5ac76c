import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { EXTRACT_QUEUE, on } from '../../src/queue.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import { limits, makeTask, openTestBench, takeResult } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';
import { breaches, installAudit } from './audit.ts';
import type { KillPlan } from './child.ts';
import { killAll, startCrashProcess } from './process.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss, url } = bench;
after(killAll);

const TICK = 'from asl_schema.aggregator_tick';
const CLOSE = "set status = 'completed',\n        completed_at";
/** A round, statement by statement. */
const POINTS: { at: string; plan: KillPlan }[] = [
  { at: 'before its tick', plan: { before: TICK } },
  { at: 'before stale results are looked for', plan: { after: TICK, before: 'with stale as' } },
  { at: 'before lost jobs are looked for', plan: { after: TICK, before: 'with page as' } },
  { at: 'before overdue tasks are looked for', plan: { after: TICK, before: 'with overdue as' } },
  {
    at: 'before an overdue task’s results are ended',
    plan: { after: 'with overdue as', before: 'with recorded as' },
  },
  { at: 'before failing tasks are looked for', plan: { after: TICK, before: 't.failure_limit <' } },
  {
    at: 'before closable tasks are looked for',
    plan: { after: TICK, before: "t.status = 'processing'\n      and t.mode" },
  },
  { at: 'before tasks are closed', plan: { after: TICK, before: CLOSE } },
  { at: 'before the commit', plan: { after: CLOSE, before: 'commit' } },
  { at: 'while the commit is on its way', plan: { after: CLOSE, before: 'commit', sent: true } },
  { at: 'after the commit', plan: { after: CLOSE, before: 'begin' } },
];

/** One task of each kind that a round has to do with. */
async function makeWork(): Promise<void> {
  // Ended, and waiting for nothing but its close. First, since the queue gives the oldest.
  const ended = await makeTask(bench, 1);
  const { job, claim } = await takeResult(bench);
  const ending = { kind: 'completed', data: {} } as const;
  await settleResult(sql, boss, { ...claim, job, ending }, limits);
  assert.equal(claim.taskId, ended.taskId);

  const stale = await makeTask(bench, 1);
  await takeResult(bench);
  await sql`
    update asl_schema.extraction_result set updated_at = now() - interval '1 day' where task_id = ${stale.taskId}`;
  const lost = await makeTask(bench, 1);
  await boss.deleteJob(EXTRACT_QUEUE, await jobIds(lost.taskId), on(sql));
  // Their jobs are taken, so that no other call of this function gets them.
  for (const limit of [{ deadline_at: new Date(0) }, { max_failed_count: 0 }]) {
    const { taskId, resultIds } = await makeTask(bench, 2);
    const first = await takeResult(bench);
    await takeResult(bench);
    const error = { kind: 'error', code: 'pdf_invalid', message: 'Not a PDF.' } as const;
    await settleResult(sql, boss, { ...first.claim, job: first.job, ending: error }, limits);
    assert.equal(resultIds.includes(first.claim.resultId), true);
    await sql`update asl_schema.extraction_task set ${sql(limit)} where id = ${taskId}`;
  }
}

const jobIds = async (taskId: string): Promise<string[]> => {
  const rows = await sql<{ id: string }[]>`
    select job_id as id from asl_schema.extraction_result where task_id = ${taskId}`;
  return rows.map((row) => row.id);
};
const openTasks = async (): Promise<number> =>
  (await sql`select 1 from asl_schema.extraction_task where status = 'processing'`).length;

test('an aggregator that is killed before any statement of its round leaves nothing half done; each task ends once', async () => {
  await installAudit(sql);
  const dead = await Promise.all(
    POINTS.map(({ plan }) =>
      startCrashProcess(url, { crashAt: plan, env: { ROLES: 'aggregator', DATABASE_POOL_SIZE: '2' } }),
    ),
  );
  const ends = dead.map(({ ended }) => ended);
  let waiting = ends.length;
  for (const end of ends) void end.then(() => waiting--);
  // Those that only see a round without work wait for one with it.
  while (waiting > 0) {
    if ((await openTasks()) < 2) await makeWork();
    await sleep(50);
  }
  assert.deepEqual(new Set(await Promise.all(ends)), new Set(['SIGKILL']));
  for (const [i, { at }] of POINTS.entries()) assert.ok(dead[i]?.killedAtMs(), `${at}: it killed itself`);

  await makeWork();
  const survivor = await startCrashProcess(url, { env: { ROLES: 'aggregator' } });
  await until('every task ended', async () => (await openTasks()) === 0, 60_000);
  const codes = await sql`
    select distinct coalesce(error_code, status) as code from asl_schema.extraction_result order by code`;
  assert.deepEqual(
    codes.map((row) => row.code),
    ['cancelled', 'completed', 'deadline_exceeded', 'extraction_stalled', 'job_lost', 'pdf_invalid'],
  );
  // The job of a result that was stale is the one thing left: nobody is here who would take it.
  const found = (await breaches(sql)).filter((breach) => !breach.startsWith('a job is live'));
  assert.deepEqual(found, []);
  survivor.signal('SIGTERM');
  assert.equal(await survivor.ended, 0);
});
