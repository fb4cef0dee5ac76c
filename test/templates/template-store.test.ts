import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as v from 'valibot';
import { newTemplate } from '../../src/http/template-schema.ts';
import type { TemplateField } from '../../src/templates/template.ts';
import { createTemplate, getTemplate, listTemplates } from '../../src/templates/template-store.ts';
import { openTestDatabase } from '../support/database.ts';
import { TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';
import { untilBlocked } from '../support/waiting.ts';

const { sql } = await openTestDatabase(import.meta.url);
const fields: TemplateField[] = [
  { key: 'title', label: 'Title "quoted" \\ 研究', type: 'text', required: true, pattern: '(\\w+)' },
  { key: 'arm', label: 'Arm', type: 'enum', enum: ['treatment', 'control'] },
];

test('a template comes back as it was given', async () => {
  const created = await createTemplate(sql, { name: 'as given', description: null, fields });
  const { templateId, createdAt, ...rest } = created;
  assert.deepEqual(rest, { name: 'as given', version: 1, description: null, fields });
  assert.ok(createdAt instanceof Date);
  assert.deepEqual(await getTemplate(sql, templateId), created);
  const [row] = await sql`select jsonb_typeof(fields) as type from asl_schema.template where id = ${templateId}`;
  assert.equal(row?.type, 'array');
});

test('the same name makes the next version and leaves the earlier one as it is', async () => {
  const first = await createTemplate(sql, { name: 'versions', description: 'one', fields });
  const second = await createTemplate(sql, { name: 'versions', description: 'two', fields: fields.slice(0, 1) });
  assert.deepEqual([first.version, second.version], [1, 2]);
  assert.deepEqual(await getTemplate(sql, first.templateId), first);
});

test('of two that race for a version, the one that waited gets the next', async () => {
  await createTemplate(sql, { name: 'race', description: null, fields });
  const held = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  const first = sql.begin(async (tx) => {
    await tx`
      insert into asl_schema.template (id, name, version, fields)
      values (gen_random_uuid(), 'race', 2, '[]')`;
    begun.resolve();
    await held.promise;
  });
  await begun.promise;
  const second = createTemplate(sql, { name: 'race', description: null, fields });
  await untilBlocked(sql, 'insert into asl_schema.template');
  held.resolve();
  await first;
  assert.equal((await second).version, 3);
});

test('thirty at once get thirty versions', async () => {
  const make = () => createTemplate(sql, { name: 'thirty', description: null, fields });
  const versions = (await Promise.all(Array.from({ length: 30 }, make))).map(({ version }) => version);
  assert.deepEqual(
    versions.sort((a, b) => a - b),
    Array.from({ length: 30 }, (_, i) => i + 1),
  );
});

test('a list is newest first, by name if asked, and walked page by page', async () => {
  const made = [];
  for (let i = 0; i < 5; i++) made.push(await createTemplate(sql, { name: 'listed', description: null, fields }));
  const first = await listTemplates(sql, { name: 'listed', limit: 3 });
  const second = await listTemplates(sql, { name: 'listed', after: first.at(-1)?.templateId, limit: 3 });
  assert.deepEqual([...first, ...second], made.toReversed());
});

test('the built-in template is there, and is one that the API would take', async () => {
  const template = await getTemplate(sql, TRIAL_TEMPLATE_ID);
  assert.equal(template?.name, 'randomised-trial');
  assert.equal(template.version, 1);
  const { name, description } = template;
  assert.deepEqual(v.parse(newTemplate, { name, description, fields: template.fields }).fields, template.fields);
  assert.deepEqual(
    template.fields.map(({ key, type, required, unit }) => [key, type, required, unit].filter((x) => x !== undefined)),
    [
      ['title', 'text', true],
      ['doi', 'text'],
      ['registration_number', 'text'],
      ['randomised', 'boolean'],
      ['number_randomised', 'integer', 'participants'],
      ['blinding', 'list'],
      ['population', 'text'],
      ['intervention', 'text'],
      ['comparator', 'text'],
      ['primary_outcome', 'text'],
      ['follow_up', 'text'],
      ['funding', 'text'],
    ],
  );
});
