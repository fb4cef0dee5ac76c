import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { makeTask, openTestBench } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';
import { breaches, installAudit, isAtRest, storedRuns } from './audit.ts';
import type { KillPlan } from './child.ts';
import { killAll, startCrashProcess } from './process.ts';

const bench = await openTestBench(import.meta.url);
const { sql, url } = bench;
after(killAll);

type Point = {
  at: string;
  plan: KillPlan;
  engine?: string;
  /** How its result stands after the kill: status, attempts, and the job's state. */
  leaves: [status: string, attempt: number, job: string] | 'either';
};

const FENCE = 'with told as';

/** The life of a result, in order. */
const POINTS: Point[] = [
  { at: 'after the fetch, before the claim', plan: { before: 'with delivered as' }, leaves: ['pending', 0, 'active'] },
  { at: 'while the claim is on its way', plan: { before: 'with delivered as', sent: true }, leaves: 'either' },
  { at: 'after the claim', plan: { before: 'from asl_schema.template' }, leaves: ['extracting', 1, 'active'] },
  { at: 'before the paper is read', plan: { before: 'document_content' }, leaves: ['extracting', 1, 'active'] },
  { at: 'inside the extraction', plan: { before: { extraction: true } }, leaves: ['extracting', 1, 'active'] },
  { at: 'before the settle', plan: { before: 'begin' }, leaves: ['extracting', 1, 'active'] },
  { at: 'in the settle, before its row is written', plan: { before: FENCE }, leaves: ['extracting', 1, 'active'] },
  {
    at: 'in the settle, before its job is completed',
    plan: { after: FENCE, before: 'completed_on' },
    leaves: ['extracting', 1, 'active'],
  },
  {
    at: 'in the settle of a failed attempt, before the next job',
    plan: { after: FENCE, before: 'INSERT INTO pgboss' },
    engine: 'transient',
    leaves: ['extracting', 1, 'active'],
  },
  { at: 'before the commit', plan: { after: FENCE, before: 'commit' }, leaves: ['extracting', 1, 'active'] },
  { at: 'while the commit is on its way', plan: { after: FENCE, before: 'commit', sent: true }, leaves: 'either' },
  { at: 'after the commit', plan: { after: FENCE, before: 'pg_notify' }, leaves: ['completed', 1, 'completed'] },
];

test('a worker that is killed at any point of a result loses nothing: another has it within 30 s, and the task closes once', async (t) => {
  await installAudit(sql);
  const { taskId } = await makeTask(bench, POINTS.length + 8);
  const env = { WORKER_SLOTS: '1', ROLES: 'worker', DATABASE_POOL_SIZE: '2' };
  // Looks for silent workers all the while, and takes no work itself.
  const aggregator = await startCrashProcess(url, { env: { ROLES: 'aggregator' } });

  // One slot each: every process takes one result and dies of it.
  const dead = await Promise.all(
    POINTS.map(async ({ plan, engine = 'answer' }) => {
      const process = await startCrashProcess(url, { crashAt: plan, env: { ...env, ENGINE: engine } });
      assert.equal(await process.ended, 'SIGKILL', process.log());
      return process;
    }),
  );
  const left = await sql<{ id: string; status: string; attempt: number; pid: number | null; job: string }[]>`
    select r.id, r.status, r.attempt, split_part(a.worker, ':', 2)::int as pid, j.state::text as job
    from asl_schema.extraction_result r
    join pgboss.job j on j.id = r.job_id
    left join asl_schema.extraction_attempt a on a.task_id = r.task_id and a.result_id = r.id
    where r.task_id = ${taskId}
      and (j.state = 'active' or a.worker is not null)`;
  const settled = await storedRuns(sql, taskId);

  const survivors = await Promise.all([1, 2].map(() => startCrashProcess(url, { env: { ROLES: 'worker' } })));
  const closed = await until(
    'the task closed',
    async () => (await sql`select 1 from asl_schema.extraction_task where id = ${taskId} and status = 'completed'`)[0],
    60_000,
  );
  assert.ok(closed);

  let worst = 0;
  for (const [i, { at, leaves }] of POINTS.entries()) {
    await t.test(at, async () => {
      const killed = dead[i];
      const killedAtMs = killed?.killedAtMs() ?? 0;
      assert.ok(killed && killedAtMs > 0, 'it killed itself, and not something else');
      const result = left.find((row) => row.pid === killed.pid) ?? left.find((row) => row.pid === null);
      assert.ok(result, 'its work had begun');
      if (leaves !== 'either') assert.deepEqual([result.status, result.attempt, result.job], leaves);
      if (result.status === 'completed') return;
      const [next] = await sql<{ atMs: number; by: number }[]>`
        select extract(epoch from started_at)::float8 * 1000 as "atMs", split_part(worker, ':', 2)::int as by
        from asl_schema.extraction_attempt
        where task_id = ${taskId} and result_id = ${result.id} and attempt = ${result.attempt + 1}`;
      assert.ok(next && next.by !== killed.pid, 'another process took it');
      worst = Math.max(worst, next.atMs - killedAtMs);
      assert.ok(next.atMs - killedAtMs < 30_000, `taken over after ${next.atMs - killedAtMs} ms`);
    });
  }
  t.diagnostic(`a killed worker's result was with another after ${Math.round(worst)} ms at the worst`);

  const final = await storedRuns(sql, taskId);
  assert.equal(final.size, POINTS.length + 8, 'every paper was read');
  for (const [id, run] of settled) assert.equal(final.get(id), run, 'what was settled stays');
  const runs = [...dead, ...survivors].flatMap((process) => process.runs);
  for (const run of final.values()) assert.ok(runs.some((one) => one.run === run));
  const attempts = await sql<{ filename: string; attempt: number }[]>`
    select filename, attempt from asl_schema.extraction_result where task_id = ${taskId}`;
  for (const { filename, attempt } of attempts) {
    assert.ok(runs.filter((one) => one.filename === filename).length <= attempt, `${filename}: a run without a claim`);
  }
  await until('rest', () => isAtRest(sql), 60_000);
  assert.deepEqual(await breaches(sql), []);
  for (const process of [...survivors, aggregator]) process.signal('SIGTERM');
  assert.deepEqual(await Promise.all([...survivors, aggregator].map((process) => process.ended)), [0, 0, 0]);
});
