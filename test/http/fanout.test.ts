import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { FANOUT } from '../../src/fanout/fanout.ts';
import { CHILD_QUEUE, MANAGER_QUEUE } from '../../src/queue.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import { addNext, takeManagerJob } from '../support/fanout.ts';
import { limits, makeDocuments, TRIAL_TEMPLATE_ID, takeResults } from '../support/fixtures.ts';
import { json, openAppBench, refusal, sendJson } from './bench.ts';

const bench = { ...(await openAppBench(import.meta.url)), mode: FANOUT };
const { sql, boss, app } = bench;

beforeEach(async () => {
  for (const queue of [CHILD_QUEUE, MANAGER_QUEUE]) await boss.deleteAllJobs(queue);
});

async function project(count: number) {
  const projectId = `project-${uuidv7()}`;
  return { projectId, templateId: TRIAL_TEMPLATE_ID, documentIds: await makeDocuments(sql, projectId, count) };
}

test('a task over a whole project is created without naming its documents, and its status tells how far it is', async () => {
  const { projectId, templateId } = await project(3);
  const created = await json(sendJson(app, '/tasks', { projectId, templateId, mode: 'fanout' }), 201);
  const { taskId } = created;
  assert.deepEqual([created.mode, created.status, created.totalCount], ['fanout', 'processing', null]);
  const status = async () => await json(app.request(`/tasks/${taskId}/status`));
  const counts = { success: 0, failed: 0, pending: 0, extracting: 0, cancelled: 0 };
  assert.deepEqual(await status(), {
    ...{ taskId, status: 'processing', statusReason: null, expanding: true },
    ...{ progress: { ...counts, total: 0, percent: 0 }, usage: {}, paused: [] },
  });

  await addNext(bench, await takeManagerJob(bench));
  assert.deepEqual((await status()).progress, { ...counts, total: 3, percent: 0, pending: 3 });
  assert.equal((await status()).expanding, false);
  const [one, two, three] = await takeResults(bench, 3);
  assert.ok(one && two && three);
  assert.deepEqual((await status()).progress, { ...counts, total: 3, percent: 0, extracting: 3 });
  for (const { claim, job } of [one, two]) {
    await settleResult(sql, boss, { ...claim, job, ending: { kind: 'completed', data: {} } }, limits, FANOUT);
  }
  assert.deepEqual((await status()).progress, { ...counts, total: 3, percent: 66, success: 2, extracting: 1 });
  const cancelled = await json(sendJson(app, `/tasks/${taskId}/cancel`, {}));
  assert.deepEqual([cancelled.status, cancelled.cancelled], ['cancelled', 1]);
  const retried = await json(sendJson(app, `/tasks/${taskId}/retry`, {}));
  assert.deepEqual([retried.status, retried.retried, retried.progress.pending], ['processing', 1, 1]);
  const [again] = await takeResults(bench, 1);
  assert.ok(again);
  const ending = { kind: 'error', code: 'pdf_invalid', message: 'Not a PDF.' } as const;
  await settleResult(sql, boss, { ...again.claim, job: again.job, ending }, limits, FANOUT);
  const closed = await json(app.request(`/tasks/${taskId}`));
  assert.deepEqual(
    [closed.status, closed.totalCount, closed.progress],
    ['completed', 3, { ...counts, total: 3, percent: 100, success: 2, failed: 1 }],
  );
  assert.equal((await json(app.request(`/tasks/${taskId}/results`))).data.length, 3);
  assert.equal((await app.request(`/tasks/${taskId}`, { method: 'DELETE' })).status, 204);
});

test('fifty equal requests at once make one task and one manager’s job', async () => {
  const request = { ...(await project(2)), mode: 'fanout', idempotencyKey: uuidv7() };
  const answers = await Promise.all(Array.from({ length: 50 }, () => sendJson(app, '/tasks', request)));
  const codes = answers.map(({ status }) => status).sort();
  assert.deepEqual(codes, [...Array(49).fill(200), 201]);
  const ids = await Promise.all(answers.map(async (answer) => ((await answer.json()) as { taskId: string }).taskId));
  assert.equal(new Set(ids).size, 1);
  const jobs = await sql`select 1 from pgboss.job where name = ${MANAGER_QUEUE} and state = 'created'`;
  assert.equal(jobs.length, 1);
});

test('the same key in another mode, or over another choice of documents, is another request', async () => {
  const request = { ...(await project(2)), idempotencyKey: uuidv7() };
  await json(sendJson(app, '/tasks', { ...request, mode: 'fanout' }), 201);
  const { documentIds: _, ...whole } = request;
  for (const other of [request, { ...request, mode: 'scatter' }, { ...whole, mode: 'fanout' }]) {
    const { status, code } = await refusal(sendJson(app, '/tasks', other));
    assert.deepEqual([status, code], [422, 'idempotency_key_conflict']);
  }
  await json(sendJson(app, '/tasks', { ...request, mode: 'fanout' }), 200);
});

test('what a request lacks is refused with its path, and nothing is made', async () => {
  const { projectId, templateId, documentIds } = await project(1);
  const refused = async (body: object) => await refusal(sendJson(app, '/tasks', { projectId, templateId, ...body }));
  const bad = { status: 400, code: 'invalid_request' };
  assert.deepEqual(await refused({}), { ...bad, paths: ['documentIds'] });
  assert.deepEqual(await refused({ mode: 'scatter' }), { ...bad, paths: ['documentIds'] });
  assert.deepEqual(await refused({ mode: 'other', documentIds }), { ...bad, paths: ['mode'] });
  assert.deepEqual(await refused({ mode: 'fanout', documentIds: [] }), { ...bad, paths: ['documentIds'] });
  const stranger = uuidv7();
  assert.deepEqual(await refused({ mode: 'fanout', documentIds: [...documentIds, stranger] }), {
    ...{ status: 422, code: 'unknown_documents', paths: ['documentIds[1]'] },
  });
  assert.deepEqual(await refused({ mode: 'fanout', documentIds: [...documentIds, ...documentIds] }), {
    ...{ status: 422, code: 'duplicate_documents', paths: ['documentIds[1]'] },
  });
  assert.equal((await sql`select 1 from asl_schema.extraction_task where project_id = ${projectId}`).length, 0);
});
