import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { retryTask } from '../../src/tasks/retry-task.ts';
import { NO_LIMITS } from '../../src/tasks/task.ts';
import { client } from '../support/client.ts';
import { limits, makeNamedDocuments, openTestBench, TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';
import { breaches, installAudit, isAtRest } from './audit.ts';
import { type CrashProcess, killAll, startCrashProcess } from './process.ts';

/*
 * What breaks services of this kind in the wild, and where it is tried here:
 *
 *   a create is cut off at any step and sent again              kill-create.test.ts
 *   jobs start while a large create is at work                  below
 *   a task without documents                                    tasks/create-task.test.ts
 *   the last result fails; all fail; they are retried by hand   below
 *   a process is told to stop in mid-result                     restart.test.ts
 *   one result of a group cannot be claimed, or not be stored   workers/consumer.test.ts
 *   NUL characters in text and messages                         tasks/settle-result.test.ts
 *   one document twice in a request                             http/task-faults.test.ts
 *   a job is dead-lettered, cancelled or deleted                tasks/sweep-tasks.test.ts
 *   a worker is stopped, overtaken and woken up                 stopped.test.ts
 *   a long but living extraction                                below
 *   twenty results end at the same moment                       below
 *   fifty equal creates at once                                 below
 *   the key of another request; the key of a task that failed   tasks/create-task.test.ts, below
 *   a cancel in mid-run                                         below
 *   a cancel of thousands, and the next task                    below
 *   a retry of what failed                                      below
 *   a rolling restart under load                                restart.test.ts
 *   PostgreSQL crashes; backends die; connections fall silent   database-away.test.ts
 *   a process dies at any point                                 kill-worker.test.ts, kill-aggregator.test.ts
 */

const bench = await openTestBench(import.meta.url);
const { sql, boss, url } = bench;
await installAudit(sql);
let processes: CrashProcess[] = [];
before(async () => {
  const env = { WORKER_SLOTS: '20', DATABASE_POOL_SIZE: '10' };
  processes = await Promise.all([1, 2].map(() => startCrashProcess(url, { env })));
});
after(killAll);

const api = () => client(processes[0]?.url ?? '');
/** Generous: a slow machine does all of this file's work at once. */
const closed = (taskId: string) => api().closed(taskId, 150_000);
const runsOf = (name: string): number =>
  processes.reduce((sum, { runs }) => sum + runs.filter((run) => run.filename.startsWith(name)).length, 0);

/** A task over papers whose names tell the stand-in engine what to do with them. */
async function make(name: string, kinds: readonly string[]): Promise<string> {
  const names = kinds.map((kind, i) => `${name}-${i}${kind === '' ? '' : `.${kind}`}.txt`);
  const documentIds = await makeNamedDocuments(sql, name, names);
  const request = { projectId: name, templateId: TRIAL_TEMPLATE_ID, documentIds, idempotencyKey: name };
  const created = await createTask(sql, boss, request, limits);
  assert.equal(created.outcome, 'created');
  return created.outcome === 'created' ? created.task.taskId : '';
}
const times = <T>(count: number, what: T): T[] => Array.from({ length: count }, () => what);
const rowsOf = (taskId: string, status: string) => sql`
  select * from asl_schema.extraction_result where task_id = ${taskId} and status = ${status} order by id`;
const closesOf = async (taskId: string): Promise<number> =>
  (await sql`select 1 from audit.task_change where task_id = ${taskId} and before = 'processing'`).length;

suite('what breaks such services', { concurrency: true }, () => {
  test('workers that take jobs while a large task is being created do all of them, and it closes once', async () => {
    const taskId = await make('large', times(500, ''));
    const { success } = await closed(taskId);
    assert.deepEqual([success, await closesOf(taskId)], [500, 1]);
    assert.equal(runsOf('large'), 500, 'each once');
  });

  test('a task whose last result fails, and one whose results all fail, close; retried by hand they close once more', async () => {
    const last = await make('last-fails', ['', '', 'wait-300.permanent']);
    const all = await make('all-fail', times(3, 'transient'));
    const first = await closed(last);
    assert.deepEqual([first.success, first.failed], [2, 1]);
    assert.deepEqual(await closed(all), { ...(await closed(all)), success: 0, failed: 3, percent: 100 });

    const untouched = await rowsOf(last, 'completed');
    for (const taskId of [last, all]) {
      const { outcome } = await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits);
      assert.equal(outcome, 'retried');
      await closed(taskId);
      assert.equal(await closesOf(taskId), 2);
    }
    assert.deepEqual(await rowsOf(last, 'completed'), untouched);
    const retried = await sql`
      select attempt, failed_attempts from asl_schema.extraction_result where task_id = ${all}`;
    assert.deepEqual([...retried], times(3, { attempt: 8, failed_attempts: 4 }));
  });

  test('a request whose task has failed is answered with that task, not with a new one', async () => {
    const taskId = await make('known', ['permanent']);
    await closed(taskId);
    const rows = await sql<{ id: string }[]>`select id from asl_schema.document where project_id = 'known'`;
    const request = {
      ...{ projectId: 'known', templateId: TRIAL_TEMPLATE_ID, idempotencyKey: 'known' },
      documentIds: rows.map((row) => row.id),
    };
    const again = await api().call<{ taskId: string; status: string }>('POST', '/tasks', request);
    assert.deepEqual([again.taskId, again.status], [taskId, 'completed']);
  });

  test('an extraction that takes longer than two heartbeats is run once, by the worker that lives', async () => {
    const taskId = await make('long', ['wait-24000']);
    const { success } = await closed(taskId);
    const [row] = await rowsOf(taskId, 'completed');
    assert.deepEqual([success, row?.attempt, runsOf('long')], [1, 1, 1]);
  });

  test('twenty results that end together, in two processes with two aggregators, close their task once', async () => {
    const taskId = await make('together', times(20, 'wait-1000'));
    await closed(taskId);
    assert.equal(await closesOf(taskId), 1);
  });

  test('fifty equal creates at once, over two processes, make one task: one 201, forty-nine replays', async () => {
    const documentIds = await makeNamedDocuments(sql, 'equal', ['equal-0.txt', 'equal-1.txt']);
    const body = JSON.stringify({ projectId: 'equal', templateId: TRIAL_TEMPLATE_ID, documentIds });
    const answers = await Promise.all(
      times(50, body).map(async (body, i) => {
        const headers = { 'content-type': 'application/json', 'idempotency-key': 'equal' };
        const answer = await fetch(`${processes[i % 2]?.url}/tasks`, { method: 'POST', body, headers });
        const { taskId, note } = (await answer.json()) as { taskId: string; note?: string };
        return { status: answer.status, taskId, note };
      }),
    );
    const [task] = await sql<{ id: string }[]>`select id from asl_schema.extraction_task where project_id = 'equal'`;
    const created = { status: 201, taskId: task?.id, note: undefined };
    const replayed = { status: 200, taskId: task?.id, note: 'Idempotent return' };
    assert.deepEqual(
      answers.sort((a, b) => b.status - a.status),
      [created, ...times(49, replayed)],
    );
    await closed(task?.id ?? '');
  });

  test('a cancel of a thousand in mid-run ends the extractions, none is completed later, and the next task starts in seconds', async (t) => {
    const taskId = await make('cancelled', times(1000, 'hold'));
    await until('extractions under way', () => runsOf('cancelled') >= 10, 120_000);
    const cancelled = await cancelTask(sql, boss, taskId);
    assert.deepEqual(cancelled, { outcome: 'cancelled', ended: 1000 });
    const atOnce = await rowsOf(taskId, 'cancelled');
    const since = performance.now();
    const next = await make('after-cancel', times(10, ''));
    await closed(next);
    t.diagnostic(`the next task was done ${Math.round(performance.now() - since)} ms after the cancel`);
    assert.ok(performance.now() - since < 20_000);
    assert.equal(atOnce.length, 1000);
    // Those that ran have been told by now: their slots did the next task.
    assert.deepEqual(await rowsOf(taskId, 'cancelled'), atOnce);
  });
});

test('after all that no rule is broken, and the processes leave in peace', async () => {
  await until('rest', () => isAtRest(sql), 60_000);
  assert.deepEqual(await breaches(sql), []);
  for (const process of processes) process.signal('SIGTERM');
  assert.deepEqual(await Promise.all(processes.map(({ ended }) => ended)), [0, 0]);
});
