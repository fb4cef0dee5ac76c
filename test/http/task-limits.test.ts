import assert from 'node:assert/strict';
import { test } from 'node:test';
import { makeDocuments, makeTask, TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';
import { json, openAppBench, refusal, sendJson } from './bench.ts';

const bench = await openAppBench(import.meta.url);
const { app, sql } = bench;
const [documentId] = await makeDocuments(sql, 'limits', 1);
const task = { projectId: 'limits', templateId: TRIAL_TEMPLATE_ID, documentIds: [documentId] };
const post = (body: object) => sendJson(app, '/tasks', { ...task, ...body });

test('a deadline and limits of failures are kept, and shown with the task', async () => {
  const sent = { deadlineAt: '2999-01-31T18:00:00.5+02:00', maxFailedCount: 0, maxFailedPercent: 12.5 };
  const kept = { ...sent, deadlineAt: '2999-01-31T16:00:00.500Z' };
  const created = await json(post(sent), 201);
  const [listed] = (await json(app.request('/tasks?projectId=limits'))).data;
  for (const shown of [created, listed, await json(app.request(`/tasks/${created.taskId}`))]) {
    const { deadlineAt, maxFailedCount, maxFailedPercent } = shown;
    assert.deepEqual({ deadlineAt, maxFailedCount, maxFailedPercent }, kept);
  }
});

test('limits may be null or at their ends', async () => {
  await json(post({ deadlineAt: null, maxFailedCount: null, maxFailedPercent: null }), 201);
  await json(post({ deadlineAt: '2999-12-31t23:59:59z', maxFailedCount: 2 ** 31 - 1, maxFailedPercent: 100 }), 201);
  await json(post({ maxFailedPercent: 0 }), 201);
});

test('limits are a part of what an idempotency key stands for; one moment in two spellings is the same', async () => {
  const keyed = { idempotencyKey: 'limits', maxFailedCount: 1 };
  const first = await json(post({ ...keyed, deadlineAt: '2999-01-01T00:00:00Z' }), 201);
  const again = await json(post({ ...keyed, deadlineAt: '2999-01-01T05:30:00.000+05:30' }), 200);
  assert.equal(again.taskId, first.taskId);
  const other = await refusal(post({ ...keyed, deadlineAt: '2999-01-01T00:00:01Z' }));
  assert.deepEqual(other, { status: 422, code: 'idempotency_key_conflict', paths: ['idempotencyKey'] });
});

test('a request that is sent again after its deadline gets its task, as it always does', async () => {
  const deadline = Date.now() + 1000;
  const body = { idempotencyKey: 'overdue', deadlineAt: new Date(deadline).toISOString() };
  const first = await json(post(body), 201);
  await until('the deadline', () => Date.now() > deadline);
  assert.equal((await json(post(body), 200)).taskId, first.taskId);
  assert.equal((await refusal(post({ ...body, idempotencyKey: 'new' }))).code, 'deadline_in_the_past');
});

test('a deadline that has passed is refused, at a create and at a retry', async () => {
  const { taskId } = await makeTask(bench, 1);
  for (const deadlineAt of ['2020-02-29T00:00:00Z', new Date().toISOString(), '0001-01-01T00:00:00Z']) {
    const past = { status: 422, code: 'deadline_in_the_past', paths: ['deadlineAt'] };
    assert.deepEqual(await refusal(post({ deadlineAt })), past);
    assert.deepEqual(await refusal(sendJson(app, `/tasks/${taskId}/retry`, { deadlineAt })), past);
  }
});

const bad: [field: string, values: unknown[]][] = [
  [
    'deadlineAt',
    [
      '2999-01-31',
      '2999-01-31T18:00:00',
      '2999-01-31 18:00:00Z',
      '2999-02-30T00:00:00Z',
      '2999-13-01T00:00:00Z',
      '2999-01-31T24:00:00Z',
      '2999-01-31T18:00:60Z',
      '2999-01-31T18:00:00+2',
      '2999-01-31T18:00:00+24:00',
      '+002999-01-31T18:00:00Z',
      'tomorrow',
      '',
      32_503_680_000_000,
      {},
    ],
  ],
  ['maxFailedCount', [-1, 1.5, '1', 2 ** 31, true]],
  ['maxFailedPercent', [-0.1, 100.1, '50', [50]]],
];
for (const [field, values] of bad) {
  test(`a ${field} that is none is refused, at a create and at a retry`, async () => {
    const { taskId } = await makeTask(bench, 1);
    for (const value of values) {
      const fault = { status: 400, code: 'invalid_request', paths: [field] };
      assert.deepEqual(await refusal(post({ [field]: value })), fault, String(value));
      assert.deepEqual(
        await refusal(sendJson(app, `/tasks/${taskId}/retry`, { [field]: value })),
        fault,
        String(value),
      );
    }
  });
}

test('why a task ended early is told in the same words wherever the task is shown', async () => {
  const projectId = 'reasons';
  const documentIds = await makeDocuments(sql, projectId, 1);
  for (const [code, status] of [
    ['cancelled_by_user', 'cancelled'],
    ['failure_threshold', 'cancelled'],
    ['deadline_exceeded', 'completed'],
  ] as const) {
    const body = { projectId, templateId: TRIAL_TEMPLATE_ID, documentIds, idempotencyKey: code };
    const { taskId } = await json(sendJson(app, '/tasks', body), 201);
    await sql`
      update asl_schema.extraction_task
      set status = ${status}, status_reason = ${code}, completed_at = now()
      where id = ${taskId}`;
    const { statusReason } = await json(app.request(`/tasks/${taskId}/status`));
    assert.deepEqual([Object.keys(statusReason), statusReason.code], [['code', 'message'], code]);
    assert.match(statusReason.message, /^[A-Z].{20,}\.$/);
    const [listed] = (await json(app.request(`/tasks?projectId=${projectId}`))).data;
    const replayed = await json(sendJson(app, '/tasks', body));
    for (const shown of [listed, replayed, await json(app.request(`/tasks/${taskId}`))]) {
      assert.deepEqual(shown.statusReason, statusReason);
      assert.equal(shown.status, status);
    }
  }
});
