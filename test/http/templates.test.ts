import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';
import { json, openAppBench, refusal, sendJson } from './bench.ts';

const { app, sql } = await openAppBench(import.meta.url);
const field = { key: 'title', label: 'Title', type: 'text' };
const post = (body: unknown) => sendJson(app, '/templates', body);

test('a template is kept as it was sent, and can be read back', async () => {
  const sent = {
    name: 'Whole 研究',
    description: 'Everything\na field may have',
    fields: [
      { key: 'title', label: 'Title', type: 'text', description: 'line\nline', required: true, pattern: '(\\w+)' },
      { key: 'Title', label: 'A key in another case', type: 'number', unit: 'mg' },
      { key: 'n', label: 'n', type: 'integer', unit: 'participants', required: false },
      { key: 'b', label: 'b', type: 'boolean' },
      { key: 'd', label: 'd', type: 'date', pattern: '\\d{4}' },
      { key: 'e', label: 'e', type: 'enum', enum: ['yes', 'no'] },
      { key: `l${'x'.repeat(63)}`, label: 'l', type: 'list', pattern: 'x' },
    ],
  };
  const answer = await post(sent);
  const template = await json(answer, 201);
  const { templateId, createdAt, ...rest } = template;
  assert.deepEqual(rest, { ...sent, version: 1 });
  assert.equal(answer.headers.get('location'), `/templates/${templateId}`);
  assert.deepEqual(await json(app.request(`/templates/${templateId.toUpperCase()}`)), template);
});

test('what is null is as if it were not there', async () => {
  const fields = [{ ...field, description: null, unit: null, enum: null, required: null, pattern: null }];
  const template = await json(post({ name: 'nulls', description: null, fields }), 201);
  assert.deepEqual([template.description, template.fields], [null, [field]]);
});

test('the same name makes versions, also when many come at once', async () => {
  const made = await Promise.all(Array.from({ length: 20 }, () => json(post({ name: 'many', fields: [field] }), 201)));
  assert.deepEqual(
    made.map(({ version }) => version).sort((a, b) => a - b),
    Array.from({ length: 20 }, (_, i) => i + 1),
  );
});

test('templates are listed newest first, by name if asked, and page by page', async () => {
  const made = [];
  for (let i = 0; i < 3; i++) made.unshift(await json(post({ name: 'listed', fields: [field] }), 201));
  const first = await json(app.request('/templates?name=listed&limit=2'));
  assert.deepEqual(first, { data: made.slice(0, 2), nextCursor: made[1].templateId });
  const second = await json(app.request(`/templates?name=listed&limit=2&cursor=${first.nextCursor}`));
  assert.deepEqual(second, { data: made.slice(2), nextCursor: null });
  const all = await json(app.request('/templates?limit=500'));
  assert.deepEqual(all.data.slice(0, 3), made);
  assert.equal(all.data.at(-1).templateId, TRIAL_TEMPLATE_ID);
});

test('a template that is not there is not found', async () => {
  const answer = app.request('/templates/01939f00-0000-7000-8000-00000000ffff');
  assert.deepEqual(await refusal(answer), { status: 404, code: 'template_not_found', paths: [] });
  assert.deepEqual(await refusal(app.request('/templates/x')), {
    status: 400,
    code: 'invalid_request',
    paths: ['templateId'],
  });
});

const one = (change: object) => ({ name: 'n', fields: [{ ...field, ...change }] });
const faulty: [what: string, body: unknown, paths: string[]][] = [
  ['that is empty', {}, ['name', 'fields']],
  ['that is a list', [], ['']],
  ['that is null', null, ['']],
  ['with a name that is no text', { name: 1, fields: [field] }, ['name']],
  ['with an empty name', { name: '', fields: [field] }, ['name']],
  ['with a long name', { name: 'x'.repeat(201), fields: [field] }, ['name']],
  ['with a NUL in its name', { name: 'a\0', fields: [field] }, ['name', 'name']],
  [
    'with half a surrogate pair in its name',
    '{"name":"\\ud800","fields":[{"key":"a","label":"a","type":"text"}]}',
    ['name'],
  ],
  ['with a NUL in its description', { name: 'n', description: 'a\0', fields: [field] }, ['description']],
  ['with a long description', { name: 'n', description: 'x'.repeat(2001), fields: [field] }, ['description']],
  ['with fields that are no list', { name: 'n', fields: {} }, ['fields']],
  ['without a field', { name: 'n', fields: [] }, ['fields']],
  [
    'with 201 fields',
    { name: 'n', fields: Array.from({ length: 201 }, (_, i) => ({ ...field, key: `k${i}` })) },
    ['fields'],
  ],
  ['with the same key twice', { name: 'n', fields: [field, { ...field, key: 'b' }, field] }, ['fields[2].key']],
  [
    'with unknown names',
    { name: 'n', fields: [{ ...field, a: 1, b: 2 }], c: 3, d: 4 },
    ['fields[0].a', 'fields[0].b', 'c', 'd'],
  ],
  [
    'with names from the prototype',
    '{"name":"n","fields":[{"key":"a","label":"a","type":"text"}],"__proto__":{},"constructor":1,"toString":1}',
    ['__proto__', 'constructor', 'toString'],
  ],
  ['with a field that is no object', { name: 'n', fields: [1, 'x', null] }, ['fields[0]', 'fields[1]', 'fields[2]']],
  ['with an empty field', { name: 'n', fields: [{}] }, ['fields[0].key', 'fields[0].label', 'fields[0].type']],
  [
    'with many faults',
    { name: '', fields: [one({ key: '1' }).fields[0], one({ type: 'x', label: '' }).fields[0]] },
    ['name', 'fields[0].key', 'fields[1].label', 'fields[1].type'],
  ],
  ['with a key that begins with a digit', one({ key: '1a' }), ['fields[0].key']],
  ['with a key with a hyphen', one({ key: 'a-b' }), ['fields[0].key']],
  ['with a key of two lines', one({ key: 'a\n' }), ['fields[0].key']],
  ['with a long key', one({ key: 'x'.repeat(65) }), ['fields[0].key']],
  ['with an empty label', one({ label: '' }), ['fields[0].label']],
  ['with a type that is not known', one({ type: 'currency' }), ['fields[0].type']],
  ['with an enum without values', one({ type: 'enum' }), ['fields[0].enum']],
  ['with an enum with an empty list', one({ type: 'enum', enum: [] }), ['fields[0].enum']],
  ['with an enum with a value twice', one({ type: 'enum', enum: ['a', 'a'] }), ['fields[0].enum']],
  [
    'with an enum with bad values',
    one({ type: 'enum', enum: ['', 1, 'x'.repeat(201), 'ok'] }),
    ['fields[0].enum[0]', 'fields[0].enum[1]', 'fields[0].enum[2]'],
  ],
  ['with 201 values', one({ type: 'enum', enum: Array.from({ length: 201 }, (_, i) => `${i}`) }), ['fields[0].enum']],
  ['with values for a text', one({ enum: ['a'] }), ['fields[0].enum']],
  ['with a unit for a text', one({ unit: 'mg' }), ['fields[0].unit']],
  ['with a pattern for a boolean', one({ type: 'boolean', pattern: 'x' }), ['fields[0].pattern']],
  ['with a pattern that does not compile', one({ pattern: '(' }), ['fields[0].pattern']],
  ['with a pattern that only backtracking could do', one({ pattern: '(a)\\1' }), ['fields[0].pattern']],
  ['with a pattern that explodes', one({ pattern: '((a{1000}){1000}){1000}' }), ['fields[0].pattern']],
  ['with a pattern that repeats without measure', one({ pattern: 'a{0,1000}'.repeat(55) }), ['fields[0].pattern']],
  ['with a million fields', { name: 'n', fields: Array.from({ length: 1_000_000 }, () => ({})) }, ['fields']],
  ['with a long pattern', one({ pattern: 'x'.repeat(501) }), ['fields[0].pattern']],
  ['with required as a text', one({ required: 'yes' }), ['fields[0].required']],
];
for (const [what, body, paths] of faulty) {
  test(`a template ${what} is refused, every fault with its path, and none is stored`, async () => {
    const count = () => sql`select count(*)::int as count from asl_schema.template`;
    const [before] = await count();
    assert.deepEqual(await refusal(post(body)), { status: 400, code: 'invalid_request', paths });
    assert.deepEqual(before, (await count())[0]);
  });
}
