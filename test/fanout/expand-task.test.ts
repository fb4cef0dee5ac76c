import assert from 'node:assert/strict';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { connect } from '../../src/db.ts';
import { deleteDocument } from '../../src/documents/document-store.ts';
import { addChunk } from '../../src/fanout/expand-task.ts';
import { giveUpExpansion } from '../../src/fanout/fail-task.ts';
import { FANOUT } from '../../src/fanout/fanout.ts';
import { CHILD_QUEUE, MANAGER_QUEUE } from '../../src/queue.ts';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { getTask } from '../../src/tasks/read-tasks.ts';
import { retryTask } from '../../src/tasks/retry-task.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import { sweepTasks } from '../../src/tasks/sweep-tasks.ts';
import { NO_LIMITS } from '../../src/tasks/task.ts';
import { addNext, makeExpandedTask, makeFanoutTask, readState, readTally, takeManagerJob } from '../support/fanout.ts';
import {
  limits,
  makeDocuments,
  openTestBench,
  TRIAL_TEMPLATE_ID,
  takeResult,
  takeResults,
  withMethod,
} from '../support/fixtures.ts';
import { untilBlocked } from '../support/waiting.ts';

const bench = { ...(await openTestBench(import.meta.url)), mode: FANOUT };
const { sql, boss, url } = bench;

/** Results and live jobs of a task, in order. */
async function readMade(taskId: string) {
  const rows = await sql<{ documentId: string; filename: string; status: string; jobs: number }[]>`
    select r.document_id as "documentId", r.filename, r.status,
      (
        select count(*)::int from pgboss.job j
        where j.name = ${CHILD_QUEUE} and j.id = r.job_id and j.data ->> 'resultId' = r.id::text and j.state = 'created'
      ) as jobs
    from asl_schema.extraction_result r
    where r.task_id = ${taskId}
    order by r.id`;
  const [jobs] = await sql<{ live: number }[]>`
    select count(*)::int as live from pgboss.job
    where name = ${CHILD_QUEUE} and data ->> 'taskId' = ${taskId} and state in ('created', 'retry', 'active')`;
  return { rows: [...rows], liveJobs: jobs?.live };
}

const managerJobs = async (taskId: string) =>
  (await sql`
    select state::text, retry_limit, expire_seconds, singleton_key, length(data::text) < 1000 as small
    from pgboss.job where name = ${MANAGER_QUEUE} and data ->> 'taskId' = ${taskId} order by created_on`) as unknown as {
    state: string;
  }[];

test('a fan-out task begins with a job for a manager, and nothing else', async () => {
  const { taskId } = await makeFanoutTask(bench, 5);
  assert.deepEqual(await readMade(taskId), { rows: [], liveJobs: 0 });
  assert.deepEqual(
    [...(await managerJobs(taskId))],
    [{ state: 'created', retry_limit: 4, expire_seconds: 3600, singleton_key: `manager-${taskId}`, small: true }],
  );
  const { status, expanding, progress } = await readState(bench, taskId);
  assert.deepEqual([status, expanding, progress.total, progress.percent], ['processing', true, 0, 0]);
  assert.equal((await getTask(sql, taskId))?.totalCount, null, 'nobody has counted yet');
  await cancelTask(sql, boss, taskId);
  await takeManagerJob(bench);
});

test('of a list the total is known at once, and what is not made yet is pending', async () => {
  const { taskId } = await makeFanoutTask(bench, 25, { listed: true });
  const held = await takeManagerJob(bench);
  const total = async () => {
    const { progress, expanding } = await readState(bench, taskId);
    return [progress.total, progress.pending, expanding];
  };
  assert.deepEqual(await total(), [25, 25, true]);
  assert.deepEqual(await addNext(bench, held), { outcome: 'added', results: 10 });
  assert.deepEqual(await total(), [25, 25, true]);
  assert.deepEqual(await addNext(bench, held), { outcome: 'added', results: 10 });
  assert.deepEqual(await addNext(bench, held), { outcome: 'expanded', results: 5 });
  assert.deepEqual(await total(), [25, 25, false]);
  assert.deepEqual(await addNext(bench, held), { outcome: 'ended' });
  assert.deepEqual(
    (await managerJobs(taskId)).map(({ state }) => state),
    ['completed'],
  );
  await boss.deleteAllJobs(CHILD_QUEUE);
});

for (const listed of [true, false]) {
  const what = listed ? 'each document of the list, in its order' : 'each document of the project, as they came';
  test(`a manager makes one result and one job of ${what}`, async () => {
    const { taskId, documentIds } = await makeExpandedTask(bench, 23, { listed });
    const { rows, liveJobs } = await readMade(taskId);
    assert.deepEqual(
      rows.map(({ documentId }) => documentId),
      documentIds,
    );
    assert.ok(rows.every(({ status, jobs }) => status === 'pending' && jobs === 1));
    assert.equal(liveJobs, 23);
    assert.deepEqual(await readTally(bench, taskId), {
      tally: { added: 23, expected: 23, success: 0, failed: 0, cancelled: 0 },
      rows: { added: 23, success: 0, failed: 0, cancelled: 0 },
    });
    assert.equal((await getTask(sql, taskId))?.totalCount, 23);
    await boss.deleteAllJobs(CHILD_QUEUE);
  });
}

test('the order of a list that is not the order of arrival is kept over the chunks', async () => {
  const projectId = `project-${uuidv7()}`;
  const documentIds = (await makeDocuments(sql, projectId, 30)).sort((a, b) => (a.slice(-4) < b.slice(-4) ? -1 : 1));
  const request = { projectId, templateId: TRIAL_TEMPLATE_ID, documentIds, idempotencyKey: null };
  const created = await createTask(sql, boss, { ...request, mode: 'fanout' }, limits);
  assert.equal(created.outcome, 'created');
  const held = await takeManagerJob(bench);
  while ((await addNext(bench, held, 7)).outcome === 'added');
  const { rows } = await readMade(held.taskId);
  assert.deepEqual(
    rows.map(({ documentId }) => documentId),
    documentIds,
  );
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('a manager whose delivery was given to another fails nothing when it gives up', async () => {
  const { taskId } = await makeFanoutTask(bench, 12, { listed: true });
  const held = await takeManagerJob(bench);
  await addNext(bench, held);
  await sql`update pgboss.job set retry_count = retry_count + 1 where id = ${held.job.id}`;
  await giveUpExpansion(sql, boss, held);
  assert.equal((await readState(bench, taskId)).status, 'processing');
  const own = { ...held, job: { ...held.job, retryCount: held.job.retryCount + 1 } };
  await giveUpExpansion(sql, boss, own);
  const { status, statusReason, progress } = await readState(bench, taskId);
  assert.deepEqual([status, statusReason, progress.cancelled], ['failed', 'expansion_failed', 12]);
});

test('a task without documents is closed by its manager', async () => {
  const { taskId } = await makeFanoutTask(bench, 0);
  const held = await takeManagerJob(bench);
  assert.deepEqual(await addNext(bench, held), { outcome: 'expanded', results: 0 });
  const { status, expanding, progress } = await readState(bench, taskId);
  assert.deepEqual([status, expanding, progress.total, progress.percent], ['completed', false, 0, 100]);
  assert.equal((await getTask(sql, taskId))?.totalCount, 0);
});

test('a task over an empty list is closed by its create', async () => {
  const { taskId } = await makeFanoutTask(bench, 0, { listed: true });
  const { status, progress } = await readState(bench, taskId);
  assert.deepEqual([status, progress.total, progress.percent], ['completed', 0, 100]);
  assert.deepEqual([...(await managerJobs(taskId))], []);
});

for (const listed of [true, false]) {
  test(`documents deleted before their result is made: ${listed ? 'an error of their own' : 'they are not in the project'}`, async () => {
    const { taskId, documentIds } = await makeFanoutTask(bench, 12, { listed });
    const held = await takeManagerJob(bench);
    await addNext(bench, held, 5);
    for (const i of [2, 6, 11]) await deleteDocument(sql, documentIds[i] as string);
    while ((await addNext(bench, held, 5)).outcome === 'added');
    const { rows } = await readMade(taskId);
    const gone = rows.filter(({ status }) => status === 'error').map(({ documentId }) => documentId);
    assert.deepEqual(gone, listed ? [documentIds[6], documentIds[11]] : []);
    assert.ok(rows.every(({ status, jobs }) => jobs === (status === 'pending' ? 1 : 0)));
    assert.equal(rows.length, listed ? 12 : 10);
    const { tally, rows: counted } = await readTally(bench, taskId);
    assert.deepEqual(tally, { ...counted, expected: rows.length });
    assert.deepEqual(
      [
        ...(await sql`select distinct error_code from asl_schema.extraction_result
          where task_id = ${taskId} and status = 'error'`),
      ].map((row) => row.error_code),
      listed ? ['document_missing'] : [],
    );
    await boss.deleteAllJobs(CHILD_QUEUE);
  });
}

test('a task of which all documents are gone closes when its manager is done', async () => {
  const { taskId, documentIds } = await makeFanoutTask(bench, 3, { listed: true });
  for (const id of documentIds) await deleteDocument(sql, id);
  await addNext(bench, await takeManagerJob(bench));
  const { status, progress } = await readState(bench, taskId);
  assert.deepEqual([status, progress.failed, progress.percent], ['completed', 3, 100]);
});

test('what a result needs of its document is copied: renaming the document later does not matter', async () => {
  const { taskId } = await makeExpandedTask(bench, 2);
  await sql`
    update asl_schema.document set filename = 'renamed.txt'
    where id in (select document_id from asl_schema.extraction_result where task_id = ${taskId})`;
  const { rows } = await readMade(taskId);
  assert.deepEqual(
    rows.map(({ filename }) => filename),
    ['paper-0.txt', 'paper-1.txt'],
  );
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('documents that come after the manager has begun are not in the task', async () => {
  const { taskId, projectId } = await makeFanoutTask(bench, 6);
  const held = await takeManagerJob(bench);
  await addNext(bench, held, 4);
  await sql`
    insert into asl_schema.document (id, project_id, filename, media_type, byte_size, sha256, storage_key)
    values (${uuidv7()}, ${projectId}, 'late.txt', 'text/plain', 1, ${'0'.repeat(64)}, ${`late:${projectId}`})`;
  assert.deepEqual(await addNext(bench, held, 4), { outcome: 'expanded', results: 2 });
  assert.equal((await readMade(taskId)).rows.length, 6);
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('children that finish while others are still added close nothing; the task closes once, with the last', async () => {
  const { taskId } = await makeFanoutTask(bench, 9);
  const manager = await takeManagerJob(bench);
  const finishAll = async (count: number) => {
    for (const { claim, job } of await takeResults(bench, count)) {
      const settlement = { ...claim, job, ending: { kind: 'completed', data: {} } as const };
      await settleResult(sql, boss, settlement, limits, FANOUT);
    }
  };
  await addNext(bench, manager, 4);
  await finishAll(4);
  const early = await readState(bench, taskId);
  assert.deepEqual([early.status, early.progress.success, early.progress.percent], ['processing', 4, 99]);
  await addNext(bench, manager, 4);
  await finishAll(4);
  assert.equal((await readState(bench, taskId)).status, 'processing');
  await addNext(bench, manager, 4);
  assert.equal((await readState(bench, taskId)).progress.percent, 88);
  await finishAll(1);
  const late = await readState(bench, taskId);
  assert.deepEqual([late.status, late.progress.success, late.progress.percent], ['completed', 9, 100]);
});

test('a manager that finds nothing more, with all children done, closes the task itself', async () => {
  const { taskId } = await makeFanoutTask(bench, 4);
  const manager = await takeManagerJob(bench);
  assert.deepEqual(await addNext(bench, manager, 4), { outcome: 'added', results: 4 });
  for (const { claim, job } of await takeResults(bench, 4)) {
    await settleResult(sql, boss, { ...claim, job, ending: { kind: 'completed', data: {} } }, limits, FANOUT);
  }
  assert.equal((await readState(bench, taskId)).status, 'processing');
  assert.deepEqual(await addNext(bench, manager, 4), { outcome: 'expanded', results: 0 });
  assert.equal((await readState(bench, taskId)).status, 'completed');
});

for (const broken of ['insert', 'complete'] as const) {
  test(`a chunk that breaks in ${broken} leaves nothing of itself, and the next manager goes on behind the last whole one`, async () => {
    const { taskId, documentIds } = await makeFanoutTask(bench, 10, { listed: true });
    const held = await takeManagerJob(bench);
    const chunkSize = broken === 'insert' ? 4 : 5;
    await addNext(bench, held, chunkSize);
    const queue = withMethod(boss, broken, () => Promise.reject(new Error('gone')));
    const before = await readMade(taskId);
    await assert.rejects(addChunk(sql, queue, { ...held, chunkSize }, limits), /gone/);
    assert.deepEqual(await readMade(taskId), before);
    while ((await addNext(bench, held, chunkSize)).outcome === 'added');
    const { rows, liveJobs } = await readMade(taskId);
    assert.deepEqual(
      rows.map(({ documentId }) => documentId),
      documentIds,
    );
    assert.equal(liveJobs, 10);
    await boss.deleteAllJobs(CHILD_QUEUE);
  });
}

test('two managers at one task, as after a long silence of the first, take turns: one result and one job a document', async () => {
  const { taskId, documentIds } = await makeFanoutTask(bench, 200, { listed: true });
  const held = await takeManagerJob(bench);
  const run = async () => {
    while ((await addNext(bench, held, 7)).outcome === 'added');
  };
  await Promise.all([run(), run(), run()]);
  const { rows, liveJobs } = await readMade(taskId);
  assert.deepEqual(
    rows.map(({ documentId }) => documentId),
    documentIds,
  );
  assert.equal(liveJobs, 200);
  assert.equal((await readTally(bench, taskId)).tally.expected, 200);
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('a manager that waits for another sees where that one has come to', async () => {
  const { taskId } = await makeFanoutTask(bench, 12, { listed: true });
  const held = await takeManagerJob(bench);
  const other = connect(url, { max: 1, applicationName: 'first-manager' });
  try {
    const first = await other.reserve();
    await first`begin`;
    await first`select 1 from asl_schema.extraction_task where id = ${taskId} for update`;
    const second = addNext(bench, held, 6);
    await untilBlocked(sql, 'extraction_task');
    await first`update asl_schema.fanout_expansion set next_position = 6, priority_base = 0 where task_id = ${taskId}`;
    await first`commit`;
    first.release();
    assert.deepEqual(await second, { outcome: 'expanded', results: 6 });
    assert.equal((await readMade(taskId)).rows.length, 6);
  } finally {
    await other.end();
  }
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('a cancel while results are made ends the task; what was never made counts as cancelled, and a retry goes on with it', async () => {
  const { taskId, documentIds } = await makeFanoutTask(bench, 10, { listed: true });
  const manager = await takeManagerJob(bench);
  await addNext(bench, manager, 4);
  const { claim, job } = await takeResult(bench);
  await settleResult(sql, boss, { ...claim, job, ending: { kind: 'completed', data: {} } }, limits, FANOUT);
  assert.deepEqual(await cancelTask(sql, boss, taskId), { outcome: 'cancelled', ended: 3 });
  assert.deepEqual(await addNext(bench, manager, 4), { outcome: 'ended' });
  const { status, expanding, progress } = await readState(bench, taskId);
  assert.deepEqual([status, expanding], ['cancelled', false]);
  assert.deepEqual(progress, {
    ...{ total: 10, success: 1, failed: 0, percent: 100, pending: 0, extracting: 0, cancelled: 9 },
  });
  assert.equal((await readMade(taskId)).liveJobs, 0);

  const retried = await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits);
  assert.deepEqual(retried, { outcome: 'retried', retried: 3 });
  const next = await takeManagerJob(bench);
  while ((await addNext(bench, next, 4)).outcome === 'added');
  const { rows } = await readMade(taskId);
  assert.deepEqual(
    rows.map(({ documentId }) => documentId),
    documentIds,
  );
  for (const one of await takeResults(bench, 9)) {
    const settlement = { ...one.claim, job: one.job, ending: { kind: 'completed', data: {} } as const };
    await settleResult(sql, boss, settlement, limits, FANOUT);
  }
  assert.equal((await readState(bench, taskId)).status, 'completed');
});

test('a retry of some results of a task that was cancelled while they were made goes on with the others as well', async () => {
  const { taskId } = await makeFanoutTask(bench, 10, { listed: true });
  const manager = await takeManagerJob(bench);
  await addNext(bench, manager, 4);
  await cancelTask(sql, boss, taskId);
  await addNext(bench, manager, 4);
  const [first] = await sql<{ id: string }[]>`
    select id from asl_schema.extraction_result where task_id = ${taskId} order by id limit 1`;
  const other = await makeExpandedTask(bench, 3);
  const request = { taskId, resultIds: [first?.id as string], limits: NO_LIMITS };
  assert.deepEqual(await retryTask(sql, boss, request, limits), { outcome: 'retried', retried: 1 });
  const next = await takeManagerJob(bench);
  while ((await addNext(bench, next, 4)).outcome === 'added');
  const { progress } = await readState(bench, taskId);
  assert.deepEqual([progress.total, progress.pending, progress.cancelled], [10, 7, 3]);
  // What is made now stands in line from the head of the queue as it is now, beside what came meanwhile.
  const served = (await takeResults(bench, 6)).map(({ claim }) => claim.taskId);
  assert.equal(served.filter((id) => id === other.taskId).length, 3);
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('a task that was cancelled before its manager came is made by a retry', async () => {
  const { taskId } = await makeFanoutTask(bench, 3);
  const first = await takeManagerJob(bench);
  await cancelTask(sql, boss, taskId);
  assert.deepEqual(await addNext(bench, first), { outcome: 'ended' });
  assert.deepEqual(await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits), {
    outcome: 'retried',
    retried: 0,
  });
  assert.deepEqual(await addNext(bench, await takeManagerJob(bench)), { outcome: 'expanded', results: 3 });
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('a retry of an open task whose results are still made has nothing to do', async () => {
  const { taskId } = await makeFanoutTask(bench, 3, { limits: { maxFailedCount: 2 } });
  assert.deepEqual(await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits), {
    outcome: 'retried',
    retried: 0,
  });
  assert.equal((await getTask(sql, taskId))?.maxFailedCount, 2);
  assert.equal((await managerJobs(taskId)).length, 1);
  await addNext(bench, await takeManagerJob(bench));
  await boss.deleteAllJobs(CHILD_QUEUE);
});

test('what is not made by the deadline is made as an error that says so, and nobody is asked to read it', async () => {
  const deadlineAt = new Date(Date.now() + 60_000);
  const { taskId } = await makeFanoutTask(bench, 9, { listed: true, limits: { deadlineAt } });
  const held = await takeManagerJob(bench);
  await addNext(bench, held, 4);
  await sql`update asl_schema.extraction_task set deadline_at = now() - interval '1 second' where id = ${taskId}`;
  while ((await addNext(bench, held, 4)).outcome === 'added');
  const { rows, liveJobs } = await readMade(taskId);
  assert.deepEqual(
    rows.map(({ status }) => status),
    [...Array(4).fill('pending'), ...Array(5).fill('error')],
  );
  assert.equal(liveJobs, 4);
  await sweepTasks(sql, boss, { mode: FANOUT, intervalMs: 0, staleAfterMs: 1_800_000, limit: 100, sweeper: 'test' });
  const { status, statusReason, progress } = await readState(bench, taskId);
  assert.deepEqual([status, statusReason, progress.failed], ['completed', 'deadline_exceeded', 9]);
  const { tally, rows: counted } = await readTally(bench, taskId);
  assert.deepEqual(tally, { ...counted, expected: 9 });
});

test('a task whose deadline passes before its manager comes closes with errors alone', async () => {
  const { taskId } = await makeFanoutTask(bench, 3, { limits: { deadlineAt: new Date(Date.now() + 60_000) } });
  await sql`update asl_schema.extraction_task set deadline_at = now() - interval '1 second' where id = ${taskId}`;
  await addNext(bench, await takeManagerJob(bench));
  const { status, statusReason, progress } = await readState(bench, taskId);
  assert.deepEqual([status, statusReason, progress.total, progress.failed], ['completed', 'deadline_exceeded', 3, 3]);
});

test('a project with more documents than a task may have fails its task, and makes none', async () => {
  const { taskId, projectId } = await makeFanoutTask(bench, 0);
  await sql`
    insert into asl_schema.document (id, project_id, filename, media_type, byte_size, sha256, storage_key)
    select gen_random_uuid(), ${projectId}, 'p.txt', 'text/plain', 1, md5(n::text) || md5(n::text), 'many:' || n
    from generate_series(1, 100001) n`;
  assert.deepEqual(await addNext(bench, await takeManagerJob(bench)), { outcome: 'ended' });
  const { status, statusReason } = await readState(bench, taskId);
  assert.deepEqual([status, statusReason], ['failed', 'too_many_documents']);
  assert.equal((await readMade(taskId)).rows.length, 0);
  assert.deepEqual(
    (await managerJobs(taskId)).map(({ state }) => state),
    ['completed'],
  );
});

test('tasks share the workers fairly: the results of a later one are served in turn with those of an earlier', async () => {
  const large = await makeExpandedTask(bench, 30);
  const small = await makeExpandedTask(bench, 5);
  const first = (await takeResults(bench, 10)).map(({ claim }) => claim.taskId);
  assert.equal(first.filter((id) => id === small.taskId).length, 5);
  assert.equal(first.filter((id) => id === large.taskId).length, 5);
  await boss.deleteAllJobs(CHILD_QUEUE);
});
