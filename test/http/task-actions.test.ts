import assert from 'node:assert/strict';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { makeTask } from '../support/fixtures.ts';
import { json, openAppBench, problem, refusal, sendJson } from './bench.ts';

const bench = await openAppBench(import.meta.url);
const { app, sql } = bench;
const unknownId = '01939f00-0000-7000-8000-00000000ffff';
const send = (path: string, method = 'POST') => app.request(path, { method });

/** A task of which the first result is completed, the second an error and the third as given. */
async function makeMixed(third: 'pending' | 'cancelled') {
  const task = await makeTask(bench, 3);
  const [done = '', failed = '', rest = ''] = task.resultIds;
  await sql`
    update asl_schema.extraction_result
    set status = 'completed', attempt = 1, extracted_data = '{}', finished_at = now()
    where task_id = ${task.taskId} and id = ${done}`;
  await sql`
    update asl_schema.extraction_result
    set status = 'error', attempt = 2, failed_attempts = 2, error_code = 'x', error_message = 'y', finished_at = now()
    where task_id = ${task.taskId} and id = ${failed}`;
  if (third === 'cancelled') await json(send(`/tasks/${task.taskId}/cancel`));
  return { ...task, done, failed, rest };
}

async function closeTask(taskId: string): Promise<void> {
  await sql`update asl_schema.extraction_task set status = 'completed', completed_at = now() where id = ${taskId}`;
}

const counts = { total: 3, success: 0, failed: 0, percent: 0, pending: 0, extracting: 0, cancelled: 0 };

test('a cancelled task is cancelled at once, keeps what has finished, and is cancelled again without harm', async () => {
  const { taskId } = await makeMixed('pending');
  const { taskId: other } = await makeTask(bench, 3);
  const progress = { ...counts, success: 1, failed: 1, cancelled: 1, percent: 100 };
  const { statusReason, ...answer } = await json(send(`/tasks/${taskId}/cancel`));
  assert.deepEqual(answer, { taskId, status: 'cancelled', cancelled: 1, progress });
  assert.equal(statusReason.code, 'cancelled_by_user');
  const status = { taskId, status: 'cancelled', statusReason, progress };
  const { usage: _, paused: __, ...shown } = await json(app.request(`/tasks/${taskId}/status`));
  assert.deepEqual(shown, status);
  assert.deepEqual(await json(send(`/tasks/${taskId.toUpperCase()}/cancel`)), { ...status, cancelled: 0 });
  assert.equal((await json(app.request(`/tasks/${other}/status`))).status, 'processing');
});

test('a cancel takes no body, an empty one or an empty object, and nothing else', async () => {
  const cancel = async (body: string | undefined, type?: string) => {
    const { taskId } = await makeTask(bench, 1);
    return await app.request(`/tasks/${taskId}/cancel`, {
      method: 'POST',
      ...(body === undefined ? {} : { body: Buffer.from(body) }),
      headers: type === undefined ? {} : { 'Content-Type': type },
    });
  };
  const form = 'application/x-www-form-urlencoded';
  const none = [cancel(undefined), cancel(undefined, 'application/json'), cancel(''), cancel('', form)];
  for (const answer of [...none, cancel('{}', 'application/json'), cancel(' {} ', 'application/json')]) {
    assert.equal((await json(answer)).cancelled, 1);
  }
  const fault = (status: number, code: string, paths: string[] = []) => ({ status, code, paths });
  assert.deepEqual(await refusal(cancel('{}', 'text/plain')), fault(415, 'unsupported_media_type'));
  assert.deepEqual(await refusal(cancel('{}')), fault(415, 'unsupported_media_type'));
  assert.deepEqual(await refusal(cancel('{', 'application/json')), fault(400, 'malformed_json', ['']));
  assert.deepEqual(await refusal(cancel('[]', 'application/json')), fault(400, 'invalid_request', ['']));
  assert.deepEqual(await refusal(cancel('{"why":1}', 'application/json')), fault(400, 'invalid_request', ['why']));
});

test('a task that has ended otherwise is not cancelled any more', async () => {
  const { taskId } = await makeTask(bench, 1);
  await closeTask(taskId);
  assert.deepEqual(await refusal(send(`/tasks/${taskId}/cancel`)), { status: 409, code: 'task_closed', paths: [] });
  assert.equal((await json(app.request(`/tasks/${taskId}/status`))).status, 'completed');
});

test('a retry gives all failed and cancelled results another chance, and new limits', async () => {
  const { taskId } = await makeMixed('cancelled');
  const body = { deadlineAt: '2999-01-01T00:00:00Z', maxFailedCount: 2, maxFailedPercent: 50 };
  const progress = { ...counts, success: 1, pending: 2, percent: 33 };
  const open = { taskId, status: 'processing', statusReason: null };
  assert.deepEqual(await json(sendJson(app, `/tasks/${taskId}/retry`, body)), { ...open, retried: 2, progress });
  const task = await json(app.request(`/tasks/${taskId}`));
  assert.deepEqual(
    [task.deadlineAt, task.maxFailedCount, task.maxFailedPercent, task.completedAt],
    ['2999-01-01T00:00:00.000Z', 2, 50, null],
  );
  assert.deepEqual(await json(send(`/tasks/${taskId}/retry`)), { ...open, retried: 0, progress });
});

test('a retry of named results leaves the others, and completed ones are no fault', async () => {
  const { taskId, done, failed, rest } = await makeMixed('cancelled');
  const answer = await json(sendJson(app, `/tasks/${taskId}/retry`, { resultIds: [failed.toUpperCase(), done] }));
  assert.equal(answer.retried, 1);
  assert.deepEqual(answer.progress, { ...counts, success: 1, pending: 1, cancelled: 1, percent: 66 });
  assert.equal((await json(app.request(`/tasks/${taskId}/results/${rest}`))).status, 'cancelled');
});

test('a retry with nothing to retry changes nothing', async () => {
  const { taskId, resultIds } = await makeTask(bench, 1);
  await sql`
    update asl_schema.extraction_result
    set status = 'completed', extracted_data = '{}', finished_at = now()
    where task_id = ${taskId}`;
  await closeTask(taskId);
  const before = await json(app.request(`/tasks/${taskId}`));
  for (const body of [{}, { resultIds }, { resultIds: null }]) {
    const answer = await json(sendJson(app, `/tasks/${taskId}/retry`, body));
    assert.deepEqual([answer.retried, answer.status], [0, 'completed']);
  }
  assert.deepEqual(await json(app.request(`/tasks/${taskId}`)), before);
});

test('results of a retry that are none, of another task, or named twice are refused by name, and nothing is retried', async () => {
  const { taskId, failed } = await makeMixed('cancelled');
  const { failed: foreign } = await makeMixed('cancelled');
  const retry = (resultIds: unknown) => sendJson(app, `/tasks/${taskId}/retry`, { resultIds });
  const strangers = await problem(retry([failed, foreign, unknownId]));
  assert.deepEqual(
    [strangers.status, strangers.code, strangers.paths],
    [422, 'unknown_results', ['resultIds[1]', 'resultIds[2]']],
  );
  assert.ok(strangers.errors[1].message.includes(unknownId));
  const many = await problem(retry(Array.from({ length: 30 }, () => uuidv7())));
  assert.deepEqual([many.code, many.errors.length], ['unknown_results', 20]);
  const twins = { status: 422, code: 'duplicate_results', paths: ['resultIds[1]'] };
  assert.deepEqual(await refusal(retry([failed, failed.toUpperCase()])), twins);
  const ids = Array.from({ length: 100_001 }, (_, i) => `01939f00-0000-7000-8000-${String(i).padStart(12, '0')}`);
  assert.deepEqual(await refusal(retry(ids)), { status: 422, code: 'too_many_results', paths: ['resultIds'] });
  for (const [resultIds, paths] of [
    [[], ['resultIds']],
    ['x', ['resultIds']],
    [
      [failed, 'x', 1],
      ['resultIds[1]', 'resultIds[2]'],
    ],
  ] as const) {
    assert.deepEqual(await refusal(retry(resultIds)), { status: 400, code: 'invalid_request', paths });
  }
  const { progress } = await json(app.request(`/tasks/${taskId}/status`));
  assert.deepEqual(progress, { ...counts, success: 1, failed: 1, cancelled: 1, percent: 100 });
});

test('a closed task is deleted with its results; an open one is not', async () => {
  const { taskId, rest } = await makeMixed('pending');
  const open = await problem(send(`/tasks/${taskId}`, 'DELETE'));
  assert.deepEqual([open.status, open.code], [409, 'task_open']);
  await json(send(`/tasks/${taskId}/cancel`));
  const deleted = await send(`/tasks/${taskId}`, 'DELETE');
  assert.deepEqual([deleted.status, await deleted.text()], [204, '']);
  for (const path of ['', '/status', '/results', `/results/${rest}`]) {
    assert.equal((await problem(app.request(`/tasks/${taskId}${path}`))).status, 404);
  }
  assert.equal((await problem(send(`/tasks/${taskId}`, 'DELETE'))).code, 'task_not_found');
});

for (const [method, path] of [
  ['POST', '/cancel'],
  ['POST', '/retry'],
  ['DELETE', ''],
] as const) {
  test(`${method} /tasks/:taskId${path} finds no task that is not there, and refuses a malformed id or query`, async () => {
    const { taskId } = await makeTask(bench, 1);
    const lost = { status: 404, code: 'task_not_found', paths: [] };
    assert.deepEqual(await refusal(send(`/tasks/${unknownId}${path}`, method)), lost);
    const malformed = { status: 400, code: 'invalid_request', paths: ['taskId'] };
    assert.deepEqual(await refusal(send(`/tasks/1${path}`, method)), malformed);
    const query = { status: 400, code: 'invalid_request', paths: ['force'] };
    assert.deepEqual(await refusal(send(`/tasks/${taskId}${path}?force=1`, method)), query);
    assert.equal((await json(app.request(`/tasks/${taskId}/status`))).status, 'processing');
  });
}
