import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { v7 as uuidv7 } from 'uuid';
import { CHILD_QUEUE, MANAGER_QUEUE } from '../../src/queue.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { type Manager, type ManagerDeps, startManager } from '../../src/workers/manager.ts';
import { makeFanoutTask, readState, readTally } from '../support/fanout.ts';
import { limits, openTestBench, silent, TRIAL_TEMPLATE_ID, withMethod } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss } = bench;
setFlagsFromString('--expose-gc');

const managers = new Set<Manager>();
function start(change: Partial<ManagerDeps> = {}): Manager {
  const manager = startManager({ sql, boss, limits, pollIntervalMs: 50, log: silent, chunkSize: 10, ...change });
  managers.add(manager);
  return manager;
}
beforeEach(async () => {
  await Promise.all([...managers].map((manager) => manager.stop()));
  managers.clear();
  for (const queue of [CHILD_QUEUE, MANAGER_QUEUE]) await boss.deleteAllJobs(queue);
});
after(() => Promise.all([...managers].map((manager) => manager.stop())));

const expanded = (taskId: string, timeoutMs?: number) =>
  until('the task expanded', async () => !(await readState(bench, taskId)).expanding, timeoutMs);
const jobsOf = async (taskId: string) => [
  ...(await sql<{ state: string; retries: number }[]>`
    select state::text, retry_count as retries from pgboss.job
    where name = ${MANAGER_QUEUE} and data ->> 'taskId' = ${taskId} order by created_on, id`),
];

test('a manager makes the results of the tasks in its queue, several at a time, and waits for no child', async () => {
  const tasks = await Promise.all([35, 0, 1, 10, 20, 7].map((count) => makeFanoutTask(bench, count)));
  start();
  for (const { taskId } of tasks) await expanded(taskId);
  const made = await Promise.all(tasks.map(async ({ taskId }) => (await readTally(bench, taskId)).tally.expected));
  assert.deepEqual(made, [35, 0, 1, 10, 20, 7]);
  for (const { taskId } of tasks) assert.deepEqual(await jobsOf(taskId), [{ state: 'completed', retries: 0 }]);
});

test('a process that is told to stop hands its task to another, which goes on where it was and spends no delivery', async () => {
  const { taskId, documentIds } = await makeFanoutTask(bench, 60, { listed: true });
  const paused = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  let chunks = 0;
  const slow = withMethod(boss, 'insert', async (...args) => {
    chunks += args[0] === CHILD_QUEUE ? 1 : 0;
    if (chunks === 3 && args[0] === CHILD_QUEUE) {
      paused.resolve();
      await go.promise;
    }
    return await boss.insert(...(args as Parameters<typeof boss.insert>));
  });
  const manager = start({ boss: slow });
  await paused.promise;
  const stopping = manager.stop();
  go.resolve();
  await stopping;
  assert.equal((await readTally(bench, taskId)).tally.added, 30, 'the chunk that it was at is whole');
  assert.deepEqual(await jobsOf(taskId), [
    { state: 'completed', retries: 0 },
    { state: 'created', retries: 0 },
  ]);
  start();
  await expanded(taskId);
  const rows = await sql<{ id: string }[]>`
    select document_id as id from asl_schema.extraction_result where task_id = ${taskId} order by extraction_result.id`;
  assert.deepEqual(
    rows.map(({ id }) => id),
    documentIds,
  );
});

test('a chunk that fails for a while is made in the end; one that always fails ends its task, and no other', async () => {
  const poisoned = await makeFanoutTask(bench, 5);
  const unlucky = await makeFanoutTask(bench, 25);
  await sql.unsafe(`
    create table if not exists trouble (task_id uuid, left_over int);
    create or replace function trouble() returns trigger language plpgsql as $$
    begin
      if new.task_id = (select task_id from trouble where left_over < 0) then raise exception 'no'; end if;
      if exists (select 1 from trouble where task_id = new.task_id and left_over > nextval('tries')) then raise exception 'not yet'; end if;
      return new;
    end $$;
    create sequence if not exists tries;
    create or replace trigger trouble before insert on asl_schema.extraction_result for each row execute function trouble();`);
  await sql`insert into trouble values (${poisoned.taskId}, -1), (${unlucky.taskId}, 3)`;
  start();
  await expanded(unlucky.taskId, 20_000);
  await until(
    'the poisoned task ended',
    async () => (await readState(bench, poisoned.taskId)).status === 'failed',
    30_000,
  );
  assert.equal((await readState(bench, poisoned.taskId)).statusReason, 'expansion_failed');
  assert.deepEqual(await jobsOf(poisoned.taskId), [{ state: 'completed', retries: 0 }]);
  assert.equal((await readTally(bench, unlucky.taskId)).tally.expected, 25);
  await sql`drop trigger trouble on asl_schema.extraction_result`;
});

test('a stranger’s job in the managers’ queue is completed, and harms nobody', async () => {
  for (const data of [{}, { taskId: 'none' }, { taskId: uuidv7() }]) {
    await boss.send(MANAGER_QUEUE, data, { singletonKey: uuidv7() });
  }
  start();
  await until('the queue empty', async () => {
    const left = await sql`select 1 from pgboss.job where name = ${MANAGER_QUEUE} and state < 'completed'`;
    return left.length === 0;
  });
});

test('a hundred thousand documents are submitted at once and made in chunks, in memory that does not grow with them', async (t) => {
  const projectId = 'a-large-project';
  await sql`
    insert into asl_schema.document (id, project_id, filename, media_type, byte_size, sha256, storage_key)
    select gen_random_uuid(), ${projectId}, 'p.txt', 'text/plain', 1, md5(n::text) || md5(n::text), 'large:' || n
    from generate_series(1, 100000) n`;
  const ids = await sql<
    { id: string }[]
  >`select id from asl_schema.document where project_id = ${projectId} order by id`;
  const request = { projectId, templateId: TRIAL_TEMPLATE_ID, idempotencyKey: null, mode: 'fanout' } as const;
  const submittedAt = performance.now();
  const created = await createTask(sql, boss, { ...request, documentIds: ids.map(({ id }) => id) }, limits);
  const submitMs = performance.now() - submittedAt;
  assert.equal(created.outcome, 'created');
  const taskId = created.outcome === 'created' ? created.task.taskId : '';
  ids.length = 0;

  // What is left after a collection between two chunks is what the manager holds on to.
  const collect = runInNewContext('gc') as () => void;
  const heap: number[] = [];
  const watched = withMethod(boss, 'insert', async (...args) => {
    if (heap.length < 200) {
      collect();
      heap.push(process.memoryUsage().heapUsed);
    }
    return await boss.insert(...(args as Parameters<typeof boss.insert>));
  });
  const startedAt = performance.now();
  start({ boss: watched, chunkSize: 1000 });
  await expanded(taskId, 120_000);
  const seconds = (performance.now() - startedAt) / 1000;
  const { tally, rows } = await readTally(bench, taskId);
  assert.deepEqual(tally, { ...rows, expected: 100_000 });
  const [jobs] = await sql<{ count: number }[]>`
    select count(distinct data ->> 'resultId')::int as count from pgboss.job where name = ${CHILD_QUEUE} and state = 'created'`;
  assert.equal(jobs?.count, 100_000);
  const growth = (Math.max(...heap.slice(-20)) - Math.max(...heap.slice(0, 20))) / 2 ** 20;
  t.diagnostic(
    `submitted in ${Math.round(submitMs)} ms, expanded in ${seconds.toFixed(1)} s, heap grown by ${growth.toFixed(1)} MB`,
  );
  assert.ok(growth < 8, `the heap grew by ${growth} MB`);
});
