import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { CHILD_QUEUE, MANAGER_QUEUE } from '../../src/queue.ts';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { type FanoutTask, makeFanoutTask, readTally } from '../support/fanout.ts';
import { openTestBench } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';
import { breaches, installAudit, isAtRest } from './audit.ts';
import type { KillPlan } from './child.ts';
import { type CrashProcess, killAll, startCrashProcess } from './process.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss, url } = bench;
after(killAll);

/** Three chunks of a manager: two whole ones, and the last. */
const CHUNK = 1000;
const DOCUMENTS = 2500;
/** So many of the tasks, the last ones, are worked to their end. */
const FINISHED = 4;

const TOUCH = 'SET heartbeat_on';
const FETCH = "name = 'asl_extract_manager'";
const TASK = 'from asl_schema.extraction_task\n    where id = $1::uuid';
const RESULTS = 'insert into asl_schema.extraction_result';
const JOBS = 'INSERT INTO pgboss';
const EXPANSION = 'update asl_schema.fanout_expansion';
const TALLY = 'set added_count = added_count';
const DONE = 'completed_on';
const CLOSE = 'with complete as';
const TOTAL = 'set total_count = case';

type Point = {
  at: string;
  plan: KillPlan;
  /** How many results it leaves: this many, or one of these. */
  leaves: number | number[];
  /** Of its task; default all. */
  documents?: number;
};

/** The life of an expansion, in order. What has been committed is whole chunks. */
const POINTS: Point[] = [
  { at: 'after the fetch', plan: { after: FETCH, before: TOUCH }, leaves: 0 },
  { at: 'before its first chunk', plan: { before: TASK }, leaves: 0 },
  { at: 'before the documents are read', plan: { after: TASK, before: 'from pgboss.job\n' }, leaves: 0 },
  { at: 'before the results', plan: { before: RESULTS }, leaves: 0 },
  { at: 'while the results are on their way', plan: { before: RESULTS, sent: true }, leaves: 0 },
  { at: 'after the results, before the jobs', plan: { after: RESULTS, before: JOBS }, leaves: 0 },
  { at: 'while the jobs are on their way', plan: { after: RESULTS, before: JOBS, sent: true }, leaves: 0 },
  { at: 'before it is noted how far it has come', plan: { before: EXPANSION }, leaves: 0 },
  { at: 'before the count', plan: { before: TALLY }, leaves: 0 },
  { at: 'while the count is on its way', plan: { before: TALLY, sent: true }, leaves: 0 },
  { at: 'before the commit', plan: { after: TALLY, before: 'commit' }, leaves: 0 },
  { at: 'while the commit is on its way', plan: { after: TALLY, before: 'commit', sent: true }, leaves: [0, CHUNK] },
  { at: 'in the last chunk, before its job is completed', plan: { after: TALLY, before: DONE }, leaves: 2 * CHUNK },
  { at: 'in the last chunk, before the total', plan: { before: TOTAL }, leaves: 2 * CHUNK },
  { at: 'before the last commit', plan: { after: TOTAL, before: 'commit' }, leaves: 2 * CHUNK },
  {
    at: 'while the last commit is on its way',
    plan: { after: TOTAL, before: 'commit', sent: true },
    leaves: [2 * CHUNK, DOCUMENTS],
  },
  { at: 'after the last commit', plan: { after: TOTAL, before: FETCH }, leaves: DOCUMENTS },
  { at: 'before it closes a task without documents', plan: { after: TOTAL, before: CLOSE }, leaves: 0, documents: 0 },
  { at: 'between two chunks', plan: { after: TALLY, before: TOUCH }, leaves: CHUNK },
];

type Killed = { task: FanoutTask; process: CrashProcess; left: Awaited<ReturnType<typeof readTally>> };

/** A manager that dies of its task. Its worker takes one child, of whichever task, and never ends it. */
async function killManager({ plan, documents = DOCUMENTS }: Point, listed: boolean): Promise<Killed> {
  const task = await makeFanoutTask(bench, documents, { listed });
  const env = { ROLES: 'worker', ENGINE: 'hold', WORKER_SLOTS: '1' };
  const process = await startCrashProcess(url, { crashAt: plan, env });
  assert.equal(await process.ended, 'SIGKILL', process.log());
  assert.ok(process.killedAtMs(), 'it killed itself, and not something else');
  // A commit that was on its way may come a moment after its sender is gone.
  await until('its connections ended', async () => {
    const rows = await sql`
      select 1 from pg_stat_activity where datname = current_database() and application_name = 'sheaf'`;
    return rows.length === 0;
  });
  return { task, process, left: await readTally(bench, task.taskId) };
}

/** Each manager's delivery that was taken over, when, and how often. */
async function readTakeover(taskId: string): Promise<{ state: string; retries: number; atMs: number }> {
  const [job] = await sql<{ state: string; retries: number; atMs: number }[]>`
    select state::text, retry_count as retries, extract(epoch from started_on)::float8 * 1000 as "atMs"
    from pgboss.job
    where name = ${MANAGER_QUEUE} and data ->> 'taskId' = ${taskId}`;
  if (job === undefined) throw new Error('its job is gone');
  return job;
}

/** A result and a job of each of its documents, in their order. */
async function checkMade({ taskId, documentIds }: FanoutTask): Promise<void> {
  const rows = await sql<{ documentId: string; jobs: number }[]>`
    select r.document_id as "documentId", count(j.id)::int as jobs
    from asl_schema.extraction_result r
    left join pgboss.job j on j.name = ${CHILD_QUEUE} and j.data ->> 'resultId' = r.id::text
    where r.task_id = ${taskId}
    group by r.task_id, r.id
    order by r.id`;
  assert.deepEqual(
    rows.map(({ documentId }) => documentId),
    documentIds,
    'one result a document, in order',
  );
  assert.ok(
    rows.every(({ jobs }) => jobs === 1),
    'and one job',
  );
}

const isExpanded = async (taskId: string): Promise<boolean> => (await readTally(bench, taskId)).tally.expected !== null;
const isEnded = async (taskId: string): Promise<boolean> =>
  (await sql`select 1 from asl_schema.extraction_task where id = ${taskId} and status <> 'processing'`).length > 0;

test('a manager that is killed at any statement leaves whole chunks; another makes the rest, once, and each task closes once', async (t) => {
  await installAudit(sql);
  const killed: Killed[] = [];
  // One after the other, and nobody looks for silent ones meanwhile: each has a task of its own.
  for (const [i, point] of POINTS.entries()) killed.push(await killManager(point, i % 2 === 0));

  const survivors = await Promise.all(
    ['worker,aggregator', 'worker'].map((ROLES) => startCrashProcess(url, { env: { ROLES, WORKER_SLOTS: '50' } })),
  );
  const startedAtMs = Date.now();
  let lastMs = 0;
  for (const [i, { at, leaves, documents = DOCUMENTS }] of POINTS.entries()) {
    await t.test(at, async () => {
      const { task, process, left } = killed[i] as Killed;
      const { taskId } = task;
      assert.ok([leaves].flat().includes(left.rows.added as number), `it left ${left.rows.added} results`);
      assert.deepEqual({ ...left.tally, ...left.rows }, left.tally, 'and a tally that says so');
      const wasDone = left.tally.expected !== null;
      await until('its results', () => isExpanded(taskId), 60_000);
      const { state, retries, atMs } = await readTakeover(taskId);
      assert.deepEqual([state, retries], ['completed', wasDone ? 0 : 1]);
      if (!wasDone) {
        lastMs = atMs - (process.killedAtMs() ?? 0);
        assert.ok(atMs - startedAtMs < 30_000, `taken over ${atMs - startedAtMs} ms after there were others`);
      }
      await checkMade(task);
      // Their children are not what this is about.
      if (i < POINTS.length - FINISHED) await cancelTask(sql, boss, taskId);
      await until('its end', () => isEnded(taskId), 120_000);
      const { tally, rows } = await readTally(bench, taskId);
      assert.deepEqual(tally, { ...rows, expected: documents });
      if (i >= POINTS.length - FINISHED) assert.equal(rows.success, documents);
    });
  }
  t.diagnostic(`the task of the manager that was killed last was with another after ${Math.round(lastMs)} ms`);
  await until('rest', () => isAtRest(sql), 60_000);
  assert.deepEqual(await breaches(sql), []);
  for (const process of survivors) process.signal('SIGTERM');
  assert.deepEqual(await Promise.all(survivors.map(({ ended }) => ended)), [0, 0]);
});
