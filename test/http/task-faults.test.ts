import assert from 'node:assert/strict';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { makeDocuments, TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';
import { json, openAppBench, problem, refusal, sendJson } from './bench.ts';

const { app, sql } = await openAppBench(import.meta.url);
const templateId = TRIAL_TEMPLATE_ID;
const post = (body: unknown, headers = {}) => sendJson(app, '/tasks', body, headers);
const unknownId = '01939f00-0000-7000-8000-00000000ffff';

const keys: [what: string, header: string, inBody: string | undefined][] = [
  ['an empty key', '', undefined],
  ['an empty quoted key', '""', undefined],
  ['a long key', 'x'.repeat(256), undefined],
  ['a key that is no ASCII', 'schl\u00fcssel', undefined],
  ['two keys', '"a"', 'b'],
  ['two keys of its own', 'a, b', undefined],
  ['two quoted keys', '"a", "b"', undefined],
  ['a quote that is never closed', '"a', undefined],
];
for (const [what, header, idempotencyKey] of keys) {
  test(`a header with ${what} is refused`, async () => {
    const body = { projectId: 'p', templateId, documentIds: [unknownId], idempotencyKey };
    const answer = post(body, { 'Idempotency-Key': header });
    assert.deepEqual(await refusal(answer), { status: 400, code: 'invalid_request', paths: ['Idempotency-Key'] });
  });
}

const whole = { projectId: 'p', templateId, documentIds: [unknownId] };
const faulty: [what: string, body: unknown, paths: string[]][] = [
  ['that is empty', {}, ['projectId', 'templateId', 'documentIds']],
  ['with wrong types', { projectId: 1, templateId: 2, documentIds: 'x' }, ['projectId', 'templateId', 'documentIds']],
  ['without documents', { ...whole, documentIds: [] }, ['documentIds']],
  [
    'with malformed ids',
    { ...whole, templateId: 'x', documentIds: [unknownId, 'y', 1, null] },
    ['templateId', 'documentIds[1]', 'documentIds[2]', 'documentIds[3]'],
  ],
  ['with a NUL in its project', { ...whole, projectId: 'a\0' }, ['projectId', 'projectId']],
  ['with half a surrogate pair in its project', { ...whole, projectId: '\ud800' }, ['projectId']],
  ['with a long project', { ...whole, projectId: 'x'.repeat(201) }, ['projectId']],
  ['with an empty key', { ...whole, idempotencyKey: '' }, ['idempotencyKey']],
  ['with a long key', { ...whole, idempotencyKey: 'x'.repeat(256) }, ['idempotencyKey']],
  ['with a key of two lines', { ...whole, idempotencyKey: 'a\nb' }, ['idempotencyKey']],
  ['with a mode that is not known', { ...whole, mode: 'swarm' }, ['mode']],
  ['with fields that are not known', { ...whole, documents: [], priority: 1 }, ['documents', 'priority']],
];
for (const [what, body, paths] of faulty) {
  test(`a task ${what} is refused, every fault with its path`, async () => {
    assert.deepEqual(await refusal(post(body)), { status: 400, code: 'invalid_request', paths });
  });
}

test('of thousands of malformed ids a hundred are named', async () => {
  const { errors } = await problem(post({ ...whole, documentIds: Array(5000).fill('x') }));
  assert.equal(errors.length, 100);
});

test('documents named twice are refused by name, in whatever spelling', async () => {
  const ids = Array.from({ length: 30 }, () => uuidv7());
  const documentIds = [...ids, ...ids.map((id) => id.toUpperCase())];
  const { status, code, paths, errors } = await problem(post({ ...whole, documentIds }));
  assert.deepEqual([status, code], [422, 'duplicate_documents']);
  assert.deepEqual(
    paths,
    Array.from({ length: 20 }, (_, i) => `documentIds[${30 + i}]`),
  );
  assert.ok(errors[0].message.includes(ids[0]));
});

test('a template and documents that are not there, or in another project, are refused by name', async () => {
  const [mine] = await makeDocuments(sql, 'mine', 1);
  const [foreign] = await makeDocuments(sql, 'foreign', 1);
  const template = await problem(post({ projectId: 'mine', templateId: unknownId, documentIds: [mine] }));
  assert.deepEqual([template.status, template.code, template.paths], [422, 'unknown_template', ['templateId']]);
  assert.ok(template.errors[0].message.includes(unknownId));
  const documents = await problem(post({ projectId: 'mine', templateId, documentIds: [unknownId, mine, foreign] }));
  assert.deepEqual([documents.status, documents.code], [422, 'unknown_documents']);
  assert.deepEqual(documents.paths.toSorted(), ['documentIds[0]', 'documentIds[2]']);
  const many = await problem(
    post({ projectId: 'mine', templateId, documentIds: Array.from({ length: 30 }, () => uuidv7()) }),
  );
  assert.equal(many.errors.length, 20);
  assert.deepEqual((await json(app.request('/tasks?projectId=mine'))).data, []);
});

test('a task over more than 100,000 documents is refused', async () => {
  const documentIds = Array.from(
    { length: 100_001 },
    (_, i) => `01939f00-0000-7000-8000-${String(i).padStart(12, '0')}`,
  );
  assert.deepEqual(await refusal(post({ ...whole, documentIds })), {
    status: 422,
    code: 'too_many_documents',
    paths: ['documentIds'],
  });
});
