import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Task } from '../../src/tasks/task.ts';
import { makeDocuments, makeTask, TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';
import { json, openAppBench, refusal, sendJson } from './bench.ts';

const bench = await openAppBench(import.meta.url);
const { app, appWith, sql } = bench;
const templateId = TRIAL_TEMPLATE_ID;
const post = (body: unknown, headers = {}) => sendJson(app, '/tasks', body, headers);
const unknownId = '01939f00-0000-7000-8000-00000000ffff';

test('a task is created over documents in the order of the request, and its progress can be asked for', async () => {
  const documentIds = (await makeDocuments(sql, 'created', 3)).toReversed();
  const answer = await post({
    projectId: 'created',
    templateId: templateId.toUpperCase(),
    documentIds,
    mode: 'scatter',
  });
  const { success, taskId, createdAt, ...task } = await json(answer, 201);
  assert.equal(success, true);
  assert.deepEqual(task, {
    projectId: 'created',
    templateId,
    templateVersion: 1,
    mode: 'scatter',
    status: 'processing',
    statusReason: null,
    totalCount: 3,
    deadlineAt: null,
    maxFailedCount: null,
    maxFailedPercent: null,
    completedAt: null,
  });
  assert.equal(answer.headers.get('location'), `/tasks/${taskId}`);
  const progress = { total: 3, success: 0, failed: 0, percent: 0, pending: 3, extracting: 0, cancelled: 0 };
  const status = { taskId, status: 'processing', statusReason: null, progress, usage: {}, paused: [] };
  assert.deepEqual(await json(app.request(`/tasks/${taskId}/status`)), status);
  assert.deepEqual(await json(app.request(`/tasks/${taskId.toUpperCase()}`)), { taskId, createdAt, ...task, progress });
  const results = await json(app.request(`/tasks/${taskId}/results`));
  assert.deepEqual(
    results.data.map(({ documentId }: { documentId: string }) => documentId),
    documentIds,
  );
  assert.equal(results.nextCursor, null);
});

test('who waits for new tasks hears of a created one, and not of a replayed one', async () => {
  const heard: Task[] = [];
  const listening = appWith({ onTaskCreated: (task) => heard.push(task) });
  const documentIds = await makeDocuments(sql, 'heard', 1);
  const body = { projectId: 'heard', templateId, documentIds, idempotencyKey: 'heard' };
  const { taskId } = await json(sendJson(listening, '/tasks', body), 201);
  await json(sendJson(listening, '/tasks', body), 200);
  assert.deepEqual(
    heard.map((task) => task.taskId),
    [taskId],
  );
});

test('the same request under the same key gives the same task, whichever way the key is sent', async () => {
  const documentIds = await makeDocuments(sql, 'replay', 2);
  const body = { projectId: 'replay', templateId, documentIds };
  const first = await json(post({ ...body, idempotencyKey: 'a "key" \\ 1' }), 201);
  const { note, ...task } = await json(post({ ...body, idempotencyKey: 'a "key" \\ 1' }), 200);
  assert.deepEqual(task, first);
  assert.equal(note, 'Idempotent return');
  const upper = { ...body, documentIds: documentIds.map((id) => id.toUpperCase()) };
  for (const [sent, header] of [
    [upper, '"a \\"key\\" \\\\ 1"'],
    [body, ' a "key" \\ 1 '],
    [{ ...body, idempotencyKey: null }, '"a \\"key\\" \\\\ 1"'],
    [{ ...body, idempotencyKey: 'a "key" \\ 1' }, 'a "key" \\ 1'],
  ] as const) {
    assert.equal((await json(post(sent, { 'Idempotency-Key': header }), 200)).taskId, first.taskId);
  }
  const others = await Promise.all([json(post(body), 201), json(post(body), 201)]);
  assert.equal(new Set([first, ...others].map(({ taskId }) => taskId)).size, 3);
});

test('ten equal requests at once are one created task and nine replays', async () => {
  const documentIds = await makeDocuments(sql, 'at-once', 2);
  const body = { projectId: 'at-once', templateId, documentIds, idempotencyKey: 'at-once' };
  const answers = await Promise.all(Array.from({ length: 10 }, () => post(body)));
  assert.deepEqual(answers.map(({ status }) => status).sort(), [...Array(9).fill(200), 201]);
  const ids = await Promise.all(answers.map(async (answer) => (await json(answer, answer.status)).taskId));
  assert.equal(new Set(ids).size, 1);
});

test('another request under a known key is refused, and nothing of the first is told', async () => {
  const documentIds = await makeDocuments(sql, 'conflict', 2);
  const body = { projectId: 'conflict', templateId, documentIds, idempotencyKey: 'conflict' };
  const { taskId } = await json(post(body), 201);
  const answer = await post({ ...body, documentIds: documentIds.slice(0, 1) });
  const text = await answer.clone().text();
  assert.deepEqual(await refusal(answer), {
    status: 422,
    code: 'idempotency_key_conflict',
    paths: ['idempotencyKey'],
  });
  for (const secret of [taskId, ...documentIds, 'conflict"']) assert.ok(!text.includes(`"${secret}`), secret);
});

test('tasks are listed newest first, by project and status, page by page', async () => {
  const projectId = 'listed';
  const documentIds = await makeDocuments(sql, projectId, 1);
  const ids: string[] = [];
  for (let i = 0; i < 3; i++) ids.unshift((await json(post({ projectId, templateId, documentIds }), 201)).taskId);
  await sql`
    update asl_schema.extraction_task
    set status = 'cancelled', status_reason = 'cancelled_by_user', completed_at = now()
    where id = ${ids[1] ?? ''}`;
  const idsAt = async (query: string) => {
    const page = await json(app.request(`/tasks?projectId=${projectId}&${query}`));
    return [page.data.map(({ taskId }: { taskId: string }) => taskId), page.nextCursor];
  };
  assert.deepEqual(await idsAt('limit=2'), [ids.slice(0, 2), ids[1]]);
  assert.deepEqual(await idsAt(`limit=2&cursor=${ids[1]}`), [ids.slice(2), null]);
  assert.deepEqual(await idsAt('status=cancelled'), [[ids[1]], null]);
  assert.deepEqual(await idsAt('status=processing'), [[ids[0], ids[2]], null]);
});

test('results show data, error and history, by status and page by page', async () => {
  const { taskId, resultIds } = await makeTask(bench, 3);
  const [done, failed, waiting] = resultIds as [string, string, string];
  await sql`
    update asl_schema.extraction_result
    set status = 'completed', attempt = 1, extracted_data = '{"title":"A"}', usage = '{"tokens":7}',
      started_at = now(), finished_at = now()
    where task_id = ${taskId} and id = ${done}`;
  await sql`
    update asl_schema.extraction_result
    set status = 'error', attempt = 2, failed_attempts = 2, error_code = 'unreadable', error_message = 'no text',
      started_at = now(), finished_at = now()
    where task_id = ${taskId} and id = ${failed}`;
  await sql`
    insert into asl_schema.extraction_attempt (task_id, result_id, attempt, worker, finished_at, outcome, error_code, error_message)
    values
      (${taskId}, ${failed}, 1, 'w1', now(), 'retry', 'timeout', 'slow'),
      (${taskId}, ${failed}, 2, 'w2', now(), 'error', 'unreadable', 'no text')`;
  const path = `/tasks/${taskId}/results`;
  const { data } = await json(app.request(path));
  const keysOf = 'resultId documentId filename status attempts data error usage startedAt finishedAt updatedAt'.split(
    ' ',
  );
  for (const result of data) assert.deepEqual(Object.keys(result), keysOf);
  const told = data.map((r: (typeof data)[0]) => [r.resultId, r.status, r.attempts, r.data, r.error, r.usage]);
  assert.deepEqual(told, [
    [done, 'completed', 1, { title: 'A' }, null, { tokens: 7 }],
    [failed, 'error', 2, null, { code: 'unreadable', message: 'no text' }, null],
    [waiting, 'pending', 0, null, null, null],
  ]);
  assert.deepEqual(await json(app.request(`${path}?limit=2`)), { data: data.slice(0, 2), nextCursor: failed });
  assert.deepEqual(await json(app.request(`${path}?limit=2&cursor=${failed}`)), {
    data: data.slice(2),
    nextCursor: null,
  });
  assert.deepEqual(await json(app.request(`${path}?status=error`)), { data: [data[1]], nextCursor: null });
  const { history, ...result } = await json(app.request(`${path}/${failed}`));
  assert.deepEqual(result, data[1]);
  assert.deepEqual(
    history.map((a: (typeof history)[0]) => [a.attempt, a.outcome, a.worker, a.error.code]),
    [
      [1, 'retry', 'w1', 'timeout'],
      [2, 'error', 'w2', 'unreadable'],
    ],
  );
  const { progress } = await json(app.request(`/tasks/${taskId}/status`));
  assert.deepEqual(progress, { total: 3, success: 1, failed: 1, percent: 66, pending: 1, extracting: 0, cancelled: 0 });
});

test('a task or result that is not there is not found, and a malformed id or query is refused', async () => {
  const { taskId } = await makeTask(bench, 1);
  for (const path of ['', '/status', '/results']) {
    const lost = { status: 404, code: 'task_not_found', paths: [] };
    assert.deepEqual(await refusal(app.request(`/tasks/${unknownId}${path}`)), lost, path);
    const malformed = { status: 400, code: 'invalid_request', paths: ['taskId'] };
    assert.deepEqual(await refusal(app.request(`/tasks/1${path}`)), malformed, path);
    const query = { status: 400, code: 'invalid_request', paths: ['x'] };
    assert.deepEqual(await refusal(app.request(`/tasks/${taskId}${path}?x=1`)), query, path);
  }
  const result = app.request(`/tasks/${taskId}/results/${unknownId}`);
  assert.deepEqual(await refusal(result), { status: 404, code: 'result_not_found', paths: [] });
  for (const [query, paths] of [
    ['status=done', ['status']],
    ['status=zz&limit=-1&cursor=x', ['status', 'limit', 'cursor']],
  ] as const) {
    const expected = { status: 400, code: 'invalid_request', paths };
    assert.deepEqual(await refusal(app.request(`/tasks?${query}`)), expected);
    assert.deepEqual(await refusal(app.request(`/tasks/${taskId}/results?${query}`)), expected);
  }
});
