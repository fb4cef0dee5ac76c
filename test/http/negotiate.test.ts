import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Hono } from 'hono';
import { negotiate } from '../../src/http/negotiate.ts';

const app = new Hono().get('/', (c) => {
  return c.text(negotiate(c, ['application/json', 'application/x-ndjson', 'text/csv']) ?? 'none');
});

const cases: [accept: string | undefined, chosen: string][] = [
  [undefined, 'application/json'],
  ['', 'application/json'],
  ['*/*', 'application/json'],
  ['text/csv', 'text/csv'],
  ['TEXT/CSV', 'text/csv'],
  ['text/csv; header=present', 'text/csv'],
  ['text/*', 'text/csv'],
  ['application/*', 'application/json'],
  ['application/x-ndjson, application/json', 'application/json'],
  ['application/json;q=0.5, application/x-ndjson', 'application/x-ndjson'],
  ['text/csv;q=0.2, application/x-ndjson;q=0.3', 'application/x-ndjson'],
  ['text/csv;q=0.9, */*;q=0.1', 'text/csv'],
  ['application/json;q=0, */*', 'application/x-ndjson'],
  ['*/*, application/json;q=0, application/x-ndjson;q=0', 'text/csv'],
  ['application/*;q=0.4, application/json;q=0.1', 'application/x-ndjson'],
  ['text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', 'application/json'],
  ['text/csv;q=0', 'none'],
  ['application/xml', 'none'],
  ['image/*, application/pdf', 'none'],
  ['*/*;q=0', 'none'],
];
for (const [accept, chosen] of cases) {
  test(`Accept: ${accept ?? 'not sent'} gets ${chosen}`, async () => {
    const answer = await app.request('/', accept === undefined ? {} : { headers: { Accept: accept } });
    assert.equal(await answer.text(), chosen);
  });
}
