import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addResults, fillTask } from '../exports/filled-task.ts';
import { parseCsv } from '../exports/parse-csv.ts';
import { makeDocuments, makeTask } from '../support/fixtures.ts';
import { json, openAppBench, problem, refusal, sendJson } from './bench.ts';

const bench = await openAppBench(import.meta.url);
const { app, sql } = bench;
const unknownId = '01939f00-0000-7000-8000-00000000ffff';
const FIXED = ['filename', 'documentId', 'resultId', 'status', 'attempts', 'errorCode', 'errorMessage', 'ungrounded'];

/** A task of three results, completed, failed and pending, of a template with one field of each kind. */
async function makeTable() {
  const projectId = `table-${Math.random()}`;
  const fields = [
    { key: 'status', label: 'Status', type: 'text' },
    { key: 'n', label: 'N', type: 'integer' },
    { key: 'blinded', label: 'Blinded', type: 'boolean' },
    { key: 'arms', label: 'Arms', type: 'list' },
  ];
  const { templateId } = await json(sendJson(app, '/templates', { name: projectId, fields }), 201);
  const documentIds = await makeDocuments(sql, projectId, 3);
  const { taskId } = await json(sendJson(app, '/tasks', { projectId, templateId, documentIds }), 201);
  const { data } = await json(app.request(`/tasks/${taskId}/results`));
  const [done, failed, waiting] = data.map(({ resultId }: { resultId: string }) => resultId);
  const values = { arms: ['placebo', '研究, "new"'], blinded: false, n: -5, status: '=cmd()' };
  const found = Object.entries(values).map(([key, value]) => [key, { value, status: 'found' }]);
  await sql`
    update asl_schema.extraction_result
    set status = 'completed', attempt = 1, extracted_data = ${sql.json(Object.fromEntries(found))}::json,
      finished_at = now()
    where task_id = ${taskId} and id = ${done}`;
  await sql`
    update asl_schema.extraction_result
    set status = 'error', attempt = 2, error_code = 'pdf_invalid', error_message = ${'two\nlines'}, finished_at = now()
    where task_id = ${taskId} and id = ${failed}`;
  return { taskId: taskId as string, path: `/tasks/${taskId}/results`, documentIds, ids: [done, failed, waiting] };
}

const table = await makeTable();

test('NDJSON has one result a line, each as in JSON', async () => {
  const { data } = await json(app.request(table.path));
  const answer = await app.request(`${table.path}?format=ndjson`);
  assert.equal(answer.headers.get('content-type'), 'application/x-ndjson');
  const lines = (await answer.text()).split('\n');
  assert.equal(lines.pop(), '');
  assert.deepEqual(
    lines.map((line) => JSON.parse(line)),
    data,
  );
});

test('CSV has one row a document, with a column for each field of the template', async () => {
  const answer = await app.request(`${table.path}?format=csv`);
  assert.equal(answer.headers.get('content-type'), 'text/csv; charset=utf-8; header=present');
  const [done, failed, waiting] = table.ids;
  const [first, second, third] = table.documentIds;
  assert.deepEqual(parseCsv(await answer.text()), [
    [...FIXED, 'data.status', 'n', 'blinded', 'arms'],
    ['paper-0.txt', first, done, 'completed', '1', '', '', '', "'=cmd()", '-5', 'false', 'placebo; 研究, "new"'],
    ['paper-1.txt', second, failed, 'error', '2', 'pdf_invalid', 'two\nlines', '', '', '', '', ''],
    ['paper-2.txt', third, waiting, 'pending', '0', '', '', '', '', '', '', ''],
  ]);
});

test('the Accept header chooses the format, and ?format= wins over it', async () => {
  const typeOf = async (query: string, accept?: string) => {
    const answer = await app.request(
      `${table.path}${query}`,
      accept === undefined ? {} : { headers: { Accept: accept } },
    );
    assert.equal(answer.headers.get('vary'), 'Accept');
    return answer.headers.get('content-type')?.split(';', 1)[0];
  };
  assert.equal(await typeOf(''), 'application/json');
  assert.equal(await typeOf('', '*/*'), 'application/json');
  assert.equal(await typeOf('', 'text/csv'), 'text/csv');
  assert.equal(await typeOf('', 'application/json;q=0.5, application/x-ndjson;q=0.6'), 'application/x-ndjson');
  assert.equal(await typeOf('?format=json', 'text/csv'), 'application/json');
  assert.equal(await typeOf('?format=csv', 'application/json'), 'text/csv');
  assert.equal(await typeOf('?format=ndjson', 'image/png'), 'application/x-ndjson');
  const none = await problem(app.request(table.path, { headers: { Accept: 'application/xml, text/csv;q=0' } }));
  assert.deepEqual([none.status, none.code, none.headers.get('vary')], [406, 'not_acceptable', 'Accept']);
});

test('a file is saved under the name of its task, by nobody in between', async () => {
  for (const [query, name] of [
    ['format=csv', `results-${table.taskId}.csv`],
    ['format=ndjson&status=error', `results-${table.taskId}-error.ndjson`],
  ]) {
    const { headers } = await app.request(`${table.path}?${query}`);
    assert.equal(headers.get('content-disposition'), `attachment; filename="${name}"`);
    assert.equal(headers.get('cache-control'), 'no-store');
    assert.equal(headers.get('x-content-type-options'), 'nosniff');
  }
  assert.equal((await app.request(table.path)).headers.get('content-disposition'), null);
});

test('an export can be of one status', async () => {
  const [, failed] = table.ids;
  const lines = await (await app.request(`${table.path}?format=ndjson&status=error`)).text();
  assert.equal(JSON.parse(lines).resultId, failed);
  const rows = parseCsv(await (await app.request(`${table.path}?format=csv&status=error`)).text());
  assert.deepEqual([rows.length, rows[1]?.[2]], [2, failed]);
});

test('an export has all results, in the order of the request, however many pages they fill', async () => {
  const { taskId, resultIds } = await makeTask(bench, 450);
  const path = `/tasks/${taskId}/results`;
  const lines = (await (await app.request(`${path}?format=ndjson`)).text()).trimEnd().split('\n');
  assert.deepEqual(
    lines.map((line) => JSON.parse(line).resultId),
    resultIds,
  );
  const [, ...rows] = parseCsv(await (await app.request(`${path}?format=csv`)).text());
  assert.deepEqual(
    rows.map((row) => row[2]),
    resultIds,
  );
});

test('an export without results is a header, or nothing', async () => {
  const path = `/tasks/${await fillTask(sql, 0, 0)}/results`;
  assert.equal(await (await app.request(`${path}?format=ndjson`)).text(), '');
  const [header, ...rows] = parseCsv(await (await app.request(`${path}?format=csv`)).text());
  assert.deepEqual([header?.slice(0, FIXED.length), rows], [FIXED, []]);
  assert.equal(await (await app.request(`${table.path}?format=ndjson&status=cancelled`)).text(), '');
});

test('results of several megabytes come whole', async () => {
  const taskId = await fillTask(sql, 3, 10);
  await addResults(sql, taskId, { from: 4, count: 2, bytes: 5_000_000 });
  const answer = await app.request(`/tasks/${taskId}/results?format=ndjson`);
  const lengths = (await answer.text()).split('\n').map((line) => line.length > 5_000_000);
  assert.deepEqual(lengths, [false, false, false, true, true, false]);
});

test('HEAD says what GET would, and reads no results', async () => {
  for (const format of ['json', 'ndjson', 'csv']) {
    const path = `${table.path}?format=${format}`;
    const [head, get] = [await app.request(path, { method: 'HEAD' }), await app.request(path)];
    assert.deepEqual([head.status, await head.text()], [200, '']);
    assert.deepEqual([...head.headers], [...get.headers]);
    await get.body?.cancel();
  }
});

test('pages are for JSON only, and what is wrong with an export is told before it begins', async () => {
  const at = (query: string, path = table.path, headers = {}) => refusal(app.request(`${path}?${query}`, { headers }));
  const fault = (...paths: string[]) => ({ status: 400, code: 'invalid_request', paths });
  for (const format of ['csv', 'ndjson']) {
    assert.deepEqual(await at(`format=${format}&limit=5`), fault('limit'));
    assert.deepEqual(await at(`format=${format}&limit=5&cursor=${unknownId}`), fault('limit', 'cursor'));
    assert.deepEqual(await at(`format=${format}&status=done`), fault('status'));
    const lost = await at(`format=${format}`, `/tasks/${unknownId}/results`);
    assert.deepEqual(lost, { status: 404, code: 'task_not_found', paths: [] });
    assert.deepEqual(await at(`format=${format}`, '/tasks/1/results'), fault('taskId'));
  }
  assert.deepEqual(await at('limit=5', table.path, { Accept: 'text/csv' }), fault('limit'));
  assert.deepEqual(await at('format=xml'), fault('format'));
  assert.deepEqual(await at('format=CSV'), fault('format'));
  assert.deepEqual(await at('format=csv&format=csv'), fault('format'));
});
