import assert from 'node:assert/strict';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { connect } from '../../src/db.ts';
import { createTemplateReader } from '../../src/templates/template-reader.ts';
import { createTemplate } from '../../src/templates/template-store.ts';
import { openTestDatabase } from '../support/database.ts';
import { TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';

const { sql, url } = await openTestDatabase(import.meta.url);

function countingPool() {
  const statements: string[] = [];
  const pool = connect(url, { max: 2, applicationName: 'reader', onStatement: (text) => statements.push(text) });
  return { pool, reads: () => statements.filter((text) => text.includes('asl_schema.template')).length };
}

test('a template is read once, however many ask for it, at once or later', async () => {
  const { pool, reads } = countingPool();
  const read = createTemplateReader(pool);
  const all = await Promise.all(Array.from({ length: 20 }, () => read(TRIAL_TEMPLATE_ID)));
  assert.equal(new Set(all).size, 1);
  assert.equal((await read(TRIAL_TEMPLATE_ID))?.templateId, TRIAL_TEMPLATE_ID);
  assert.equal(reads(), 1);
  await pool.end();
});

test('a template that was not there, or could not be read, is asked for again', async () => {
  const { pool, reads } = countingPool();
  const read = createTemplateReader(pool);
  const id = uuidv7();
  assert.equal(await read(id), undefined);
  assert.equal(await read(id), undefined);
  assert.equal(reads(), 2);
  await pool.end();
  await assert.rejects(read(TRIAL_TEMPLATE_ID));
  await assert.rejects(read(TRIAL_TEMPLATE_ID));
});

test('of many templates those that were asked for last are kept', async () => {
  const fields = [{ key: 'k', label: 'K', type: 'text' as const }];
  const ids: string[] = [];
  for (let i = 0; i < 101; i++) {
    ids.push((await createTemplate(sql, { name: `t${i}`, description: null, fields: fields as never })).templateId);
  }
  const { pool, reads } = countingPool();
  const read = createTemplateReader(pool);
  for (const id of ids) await read(id);
  assert.equal(reads(), 101);
  await read(ids[100] as string);
  assert.equal(reads(), 101);
  await read(ids[0] as string);
  assert.equal(reads(), 102);
  await pool.end();
});
