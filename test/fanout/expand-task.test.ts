import assert from 'node:assert/strict';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { deleteDocument } from '../../src/documents/document-store.ts';
import { FANOUT } from '../../src/fanout/fanout.ts';
import { CHILD_QUEUE } from '../../src/queue.ts';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { getTask } from '../../src/tasks/read-tasks.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import {
  addNext,
  makeExpandedTask,
  makeFanoutTask,
  managerJobs,
  readMade,
  readState,
  readTally,
  takeManagerJob,
} from '../support/fanout.ts';
import { limits, makeDocuments, openTestBench, TRIAL_TEMPLATE_ID, takeResults } from '../support/fixtures.ts';

const bench = { ...(await openTestBench(import.meta.url)), mode: FANOUT };
const { sql, boss } = bench;

test('a fan-out task begins with a job for a manager, and nothing else', async () => {
  const { taskId } = await makeFanoutTask(bench, 5);
  assert.deepEqual(await readMade(bench, taskId), { rows: [], liveJobs: 0 });
  assert.deepEqual(
    [...(await managerJobs(bench, taskId))],
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
    (await managerJobs(bench, taskId)).map(({ state }) => state),
    ['completed'],
  );
  await boss.deleteAllJobs(CHILD_QUEUE);
});

for (const listed of [true, false]) {
  const what = listed ? 'each document of the list, in its order' : 'each document of the project, as they came';
  test(`a manager makes one result and one job of ${what}`, async () => {
    const { taskId, documentIds } = await makeExpandedTask(bench, 23, { listed });
    const { rows, liveJobs } = await readMade(bench, taskId);
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
  const { rows } = await readMade(bench, held.taskId);
  assert.deepEqual(
    rows.map(({ documentId }) => documentId),
    documentIds,
  );
  await boss.deleteAllJobs(CHILD_QUEUE);
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
  assert.deepEqual([...(await managerJobs(bench, taskId))], []);
});

for (const listed of [true, false]) {
  test(`documents deleted before their result is made: ${listed ? 'an error of their own' : 'they are not in the project'}`, async () => {
    const { taskId, documentIds } = await makeFanoutTask(bench, 12, { listed });
    const held = await takeManagerJob(bench);
    await addNext(bench, held, 5);
    for (const i of [2, 6, 11]) await deleteDocument(sql, documentIds[i] as string);
    while ((await addNext(bench, held, 5)).outcome === 'added');
    const { rows } = await readMade(bench, taskId);
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
  const { rows } = await readMade(bench, taskId);
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
  assert.equal((await readMade(bench, taskId)).rows.length, 6);
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

test('a project with more documents than a task may have fails its task, and makes none', async () => {
  const { taskId, projectId } = await makeFanoutTask(bench, 0);
  await sql`
    insert into asl_schema.document (id, project_id, filename, media_type, byte_size, sha256, storage_key)
    select gen_random_uuid(), ${projectId}, 'p.txt', 'text/plain', 1, md5(n::text) || md5(n::text), 'many:' || n
    from generate_series(1, 100001) n`;
  assert.deepEqual(await addNext(bench, await takeManagerJob(bench)), { outcome: 'ended' });
  const { status, statusReason } = await readState(bench, taskId);
  assert.deepEqual([status, statusReason], ['failed', 'too_many_documents']);
  assert.equal((await readMade(bench, taskId)).rows.length, 0);
  assert.deepEqual(
    (await managerJobs(bench, taskId)).map(({ state }) => state),
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
