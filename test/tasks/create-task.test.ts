import assert from 'node:assert/strict';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { EXTRACT_QUEUE } from '../../src/queue.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { listResults } from '../../src/tasks/read-tasks.ts';
import { taskProgress } from '../../src/tasks/task-progress.ts';
import {
  fetchDeliveries,
  limits,
  makeDocuments,
  makeTask,
  openTestBench,
  TRIAL_TEMPLATE_ID,
  withMethod,
} from '../support/fixtures.ts';
import { untilBlocked } from '../support/waiting.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss } = bench;
const templateId = TRIAL_TEMPLATE_ID;

async function counts(projectId: string) {
  const [row] = await sql`
    select
      (select count(*)::int from asl_schema.extraction_task where project_id = ${projectId}) as tasks,
      (select count(*)::int from asl_schema.extraction_result r
        join asl_schema.extraction_task t on t.id = r.task_id where t.project_id = ${projectId}) as results,
      (select count(*)::int from pgboss.job j join asl_schema.extraction_task t
        on t.id::text = j.data ->> 'taskId' where t.project_id = ${projectId}) as jobs`;
  return { ...row };
}

test('a task comes with one result and one job for each document, in the order of the request', async () => {
  const documentIds = (await makeDocuments(sql, 'order', 25)).reverse();
  const created = await createTask(
    sql,
    boss,
    { projectId: 'order', templateId, documentIds, idempotencyKey: null },
    limits,
  );
  assert.equal(created.outcome, 'created');
  if (created.outcome !== 'created') return;
  const { taskId, createdAt, ...task } = created.task;
  assert.deepEqual(task, {
    projectId: 'order',
    templateId,
    templateVersion: 1,
    mode: 'scatter',
    status: 'processing',
    statusReason: null,
    totalCount: 25,
    deadlineAt: null,
    maxFailedCount: null,
    maxFailedPercent: null,
    completedAt: null,
  });
  const results = await listResults(sql, { taskId, limit: 100 });
  assert.deepEqual(
    results.map(({ documentId, filename, status, attempts }) => ({ documentId, filename, status, attempts })),
    documentIds.map((documentId, i) => ({
      documentId,
      filename: `paper-${24 - i}.txt`,
      status: 'pending',
      attempts: 0,
    })),
  );
  assert.deepEqual(await counts('order'), { tasks: 1, results: 25, jobs: 25 });
  assert.deepEqual(await taskProgress(sql, taskId), {
    status: 'processing',
    statusReason: null,
    progress: { total: 25, success: 0, failed: 0, percent: 0, pending: 25, extracting: 0, cancelled: 0 },
  });
});

test('a job carries ids alone, under 1 kB, expires, and its queue has a plain name', async () => {
  const documentIds = await makeDocuments(sql, 'payload', 1);
  const created = await createTask(
    sql,
    boss,
    { projectId: 'payload', templateId, documentIds, idempotencyKey: null },
    limits,
  );
  assert.ok(created.outcome === 'created');
  const [job] = await sql`
    select
      j.data, j.expire_seconds, j.heartbeat_seconds, j.singleton_key, j.policy,
      j.id = r.job_id as is_the_results, octet_length(j.data::text) as bytes
    from pgboss.job j
    join asl_schema.extraction_result r on r.id::text = j.data ->> 'resultId'
    where r.task_id = ${created.task.taskId}`;
  assert.ok(job);
  assert.deepEqual(Object.keys(job.data).sort(), ['resultId', 'taskId']);
  assert.deepEqual(
    { ...job, data: undefined, bytes: undefined },
    {
      data: undefined,
      bytes: undefined,
      expire_seconds: limits.jobExpirySeconds,
      heartbeat_seconds: limits.heartbeatSeconds,
      singleton_key: `extract-${job.data.resultId}`,
      policy: 'exclusive',
      is_the_results: true,
    },
  );
  assert.ok(job.bytes < 1024);
  assert.match(EXTRACT_QUEUE, /^[a-z0-9_]+$/);
});

test('a create that breaks at its last step leaves nothing behind, and can be sent again under its key', async () => {
  const documentIds = await makeDocuments(sql, 'atomic', 3);
  const request = { projectId: 'atomic', templateId, documentIds, idempotencyKey: 'atomic-1' };
  const broken = withMethod(boss, 'insert', () => Promise.reject(new Error('gone')));
  await assert.rejects(createTask(sql, broken, request, limits), /gone/);
  assert.deepEqual(await counts('atomic'), { tasks: 0, results: 0, jobs: 0 });
  assert.equal((await createTask(sql, boss, request, limits)).outcome, 'created');
  assert.deepEqual(await counts('atomic'), { tasks: 1, results: 3, jobs: 3 });
});

test('a create whose jobs do not all get in is rolled back: a result without a job would never end', async () => {
  const documentIds = await makeDocuments(sql, 'skipped', 3);
  const request = { projectId: 'skipped', templateId, documentIds, idempotencyKey: null };
  const deaf = withMethod(boss, 'insert', async () => ['only-one']);
  await assert.rejects(createTask(sql, deaf, request, limits), /2 of 3 jobs/);
  assert.deepEqual(await counts('skipped'), { tasks: 0, results: 0, jobs: 0 });
});

test('50 equal requests at once make one task, and all are told its id', async () => {
  const documentIds = await makeDocuments(sql, 'storm', 4);
  const request = { projectId: 'storm', templateId, documentIds, idempotencyKey: 'storm-1' };
  const outcomes = await Promise.all(Array.from({ length: 50 }, () => createTask(sql, boss, request, limits)));
  const ids = outcomes.map((outcome) => ('task' in outcome ? outcome.task.taskId : outcome.outcome));
  assert.equal(new Set(ids).size, 1);
  assert.deepEqual(outcomes.map(({ outcome }) => outcome).sort(), ['created', ...Array(49).fill('replayed')]);
  assert.deepEqual(await counts('storm'), { tasks: 1, results: 4, jobs: 4 });
});

test('another request under a known key is refused and learns nothing', async () => {
  const documentIds = await makeDocuments(sql, 'key', 2);
  const request = { projectId: 'key', templateId, documentIds, idempotencyKey: 'key-1' };
  assert.equal((await createTask(sql, boss, request, limits)).outcome, 'created');
  const [first, second] = documentIds as [string, string];
  for (const other of [
    { ...request, documentIds: [first] },
    { ...request, documentIds: [second, first] },
    { ...request, projectId: 'elsewhere' },
    { ...request, templateId: uuidv7() },
  ]) {
    const outcome = await createTask(sql, boss, other, limits);
    // An unknown template is told before the key is looked at; neither answer reveals the task.
    const expected = other.templateId === templateId ? 'key_conflict' : 'unknown_template';
    assert.deepEqual(outcome, { outcome: expected });
  }
  assert.deepEqual(await counts('key'), { tasks: 1, results: 2, jobs: 2 });
});

test('a request waits for its twin, and creates the task itself when the twin rolls back', async () => {
  const documentIds = await makeDocuments(sql, 'twin', 2);
  const request = { projectId: 'twin', templateId, documentIds, idempotencyKey: 'twin-1' };
  const twin = await sql.reserve();
  try {
    await twin`begin`;
    await twin`
      insert into asl_schema.extraction_task (
        id, project_id, template_id, template_version, mode, idempotency_key, request_fingerprint, total_count
      )
      values (${uuidv7()}, 'twin', ${templateId}, 1, 'scatter', 'twin-1', ${'0'.repeat(64)}, 0)`;
    const waiting = createTask(sql, boss, request, limits);
    await untilBlocked(sql, 'insert into asl_schema.extraction_task');
    await twin`rollback`;
    assert.equal((await waiting).outcome, 'created');
  } finally {
    twin.release();
  }
  assert.deepEqual(await counts('twin'), { tasks: 1, results: 2, jobs: 2 });
});

test('requests without a key never meet: each makes a task of its own', async () => {
  const documentIds = await makeDocuments(sql, 'nokey', 1);
  const request = { projectId: 'nokey', templateId, documentIds, idempotencyKey: null };
  const outcomes = await Promise.all([1, 2, 3].map(() => createTask(sql, boss, request, limits)));
  assert.deepEqual(
    outcomes.map(({ outcome }) => outcome),
    ['created', 'created', 'created'],
  );
});

test('unknown documents, and those of another project, are named, at most twenty, and nothing is made', async () => {
  const own = await makeDocuments(sql, 'unknown', 2);
  const foreign = await makeDocuments(sql, 'foreign', 30);
  const documentIds = [...own, ...foreign];
  const request = { projectId: 'unknown', templateId, documentIds, idempotencyKey: 'unknown-1' };
  assert.deepEqual(await createTask(sql, boss, request, limits), {
    outcome: 'unknown_documents',
    count: 30,
    documentIds: foreign.slice(0, 20),
  });
  assert.deepEqual(await counts('unknown'), { tasks: 0, results: 0, jobs: 0 });
});

test('an unknown template is refused', async () => {
  const documentIds = await makeDocuments(sql, 'notemplate', 1);
  const request = { projectId: 'notemplate', templateId: uuidv7(), documentIds, idempotencyKey: null };
  assert.deepEqual(await createTask(sql, boss, request, limits), { outcome: 'unknown_template' });
});

test('a task of no documents is closed at once, with 100 percent', async () => {
  const request = { projectId: 'empty', templateId, documentIds: [], idempotencyKey: null };
  const created = await createTask(sql, boss, request, limits);
  assert.ok(created.outcome === 'created');
  assert.equal(created.task.status, 'completed');
  assert.ok(created.task.completedAt);
  const state = await taskProgress(sql, created.task.taskId);
  assert.deepEqual([state?.status, state?.progress.total, state?.progress.percent], ['completed', 0, 100]);
});

test('a small task that comes after a large one is served in turn with it, not behind it', async () => {
  await boss.deleteAllJobs(EXTRACT_QUEUE);
  const large = await makeTask(bench, 200);
  await fetchDeliveries(bench, 50);
  const small = await makeTask(bench, 5);
  const next = await fetchDeliveries(bench, 12);
  const served = next.filter(({ delivery }) => delivery.taskId === small.taskId).length;
  assert.equal(served, 5);
  assert.equal(next.length - served, 7);
  // Nor is the large one starved by a second large one.
  const second = await makeTask(bench, 200);
  const both = await fetchDeliveries(bench, 100);
  const ofSecond = both.filter(({ delivery }) => delivery.taskId === second.taskId).length;
  assert.ok(ofSecond >= 45 && ofSecond <= 55, `${ofSecond} of 100 were the second one's`);
  assert.equal(both.length - ofSecond, both.filter(({ delivery }) => delivery.taskId === large.taskId).length);
});

test('what a task reads is settled when it is created: a later rename or delete does not reach its rows', async () => {
  const documentIds = await makeDocuments(sql, 'snapshot', 1);
  const request = { projectId: 'snapshot', templateId, documentIds, idempotencyKey: null };
  const created = await createTask(sql, boss, request, limits);
  assert.ok(created.outcome === 'created');
  await sql`update asl_schema.document set filename = 'renamed.txt' where project_id = 'snapshot'`;
  await sql`delete from asl_schema.document where project_id = 'snapshot'`;
  const [row] = await sql`
    select filename, storage_key from asl_schema.extraction_result where task_id = ${created.task.taskId}`;
  assert.deepEqual({ ...row }, { filename: 'paper-0.txt', storage_key: `test:${documentIds[0]}` });
});
