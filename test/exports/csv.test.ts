import assert from 'node:assert/strict';
import { test } from 'node:test';
import { csvHeader, toCsv } from '../../src/exports/csv.ts';
import type { TaskResult } from '../../src/tasks/task.ts';
import type { TemplateField } from '../../src/templates/template.ts';
import { parseCsv } from './parse-csv.ts';

const FIXED = ['filename', 'documentId', 'resultId', 'status', 'attempts', 'errorCode', 'errorMessage', 'ungrounded'];

function fields(...keys: string[]): TemplateField[] {
  return keys.map((key) => ({ key, label: key, type: 'text' }));
}

function result(change: Partial<TaskResult>): TaskResult {
  return {
    resultId: 'r',
    documentId: 'd',
    filename: 'a.pdf',
    status: 'completed',
    attempts: 1,
    data: null,
    error: null,
    usage: null,
    startedAt: null,
    finishedAt: null,
    updatedAt: new Date(0),
    ...change,
  };
}

/** The cells of one result with these values, and the text they were read from. */
function write(values: Record<string, unknown>, change: Partial<TaskResult> = {}) {
  const data = Object.fromEntries(Object.entries(values).map(([key, value]) => [key, { value, status: 'found' }]));
  const text = toCsv([result({ data, ...change })], fields(...Object.keys(values)));
  const [row, ...more] = parseCsv(text);
  assert.equal(more.length, 0);
  return { text, fixed: row?.slice(0, FIXED.length), cells: row?.slice(FIXED.length) };
}

test('the header names the fixed columns and then the fields in the order of the template', () => {
  assert.deepEqual(parseCsv(csvHeader(fields('zeta', 'alpha'))), [[...FIXED, 'zeta', 'alpha']]);
  assert.deepEqual(parseCsv(csvHeader([])), [FIXED]);
});

test('a field that is called like a fixed column has a column of its own, under a name that no field can have', () => {
  const header = csvHeader(fields('status', 'title', 'data', 'filename'));
  assert.deepEqual(parseCsv(header), [[...FIXED, 'data.status', 'title', 'data', 'data.filename']]);
  const { fixed, cells } = write({ status: 'recruiting', filename: 'b' }, { status: 'completed' });
  assert.deepEqual([fixed?.[0], fixed?.[3], cells], ['a.pdf', 'completed', ['recruiting', 'b']]);
});

test('values are written by their type; none is an empty cell', () => {
  const values = {
    a: 12.5,
    b: -3,
    c: true,
    d: false,
    e: ['x', 'y; z'],
    f: null,
    g: 0,
    h: '2024-01-31',
    i: 1e21,
    j: '',
  };
  const { text, cells } = write(values);
  assert.deepEqual(cells, ['12.5', '-3', 'true', 'false', 'x; y; z', '', '0', '2024-01-31', '1e+21', '']);
  assert.ok(text.includes(',12.5,-3,true,false,x; y; z,,0,'));
});

test('a result without data, and one with data for other fields, have empty cells', () => {
  for (const data of [null, {}, { other: { value: 1 } }, { a: null }]) {
    const [row] = parseCsv(toCsv([result({ data })], fields('a', 'constructor')));
    assert.deepEqual(row?.slice(FIXED.length), ['', '']);
  }
});

test('what went wrong has its columns', () => {
  const error = { code: 'pdf_invalid', message: 'not a PDF, or "damaged"' };
  const { fixed } = write({}, { status: 'error', attempts: 4, error });
  assert.deepEqual(fixed, ['a.pdf', 'd', 'r', 'error', '4', 'pdf_invalid', 'not a PDF, or "damaged"', '']);
});

test('fields whose values the paper does not bear out are named in their row', () => {
  const found = { value: 1, status: 'found' };
  const data = { a: found, b: { value: 'x', status: 'ungrounded' }, c: { value: 2, status: 'ungrounded' } };
  const [row] = parseCsv(toCsv([result({ data })], fields('a', 'b', 'c')));
  assert.deepEqual(row?.slice(FIXED.length - 1), ['b; c', '1', 'x', '2']);
});

test('commas, quotes, line ends and every script come back as they were', () => {
  const values = {
    a: 'one, two',
    b: 'say "yes"',
    c: 'two\nlines',
    d: 'two\r\nlines',
    e: 'ends in CR\r',
    f: '研究 – Über, naïve 𝛼 👩‍🔬 \u200fعربي',
    g: ' spaced ',
    h: '"',
    i: "it's",
    j: '\u2028',
  };
  assert.deepEqual(write(values).cells, Object.values(values));
});

test('text that a spreadsheet would run begins with an apostrophe, a typed number does not', () => {
  const formulas = [
    '=1+1',
    '+1',
    '-1',
    '@SUM(A1)',
    '\t=1',
    '\r=1',
    '＝1',
    '＋1',
    '－1',
    '＠1',
    '-',
    '=HYPERLINK("x",","&"y")',
  ];
  for (const formula of formulas) {
    assert.deepEqual(write({ a: formula }, { filename: formula }).cells, [`'${formula}`], formula);
    assert.equal(write({}, { filename: formula }).fixed?.[0], `'${formula}`);
    assert.deepEqual(write({ a: [formula, 'x'] }).cells, [`'${formula}; x`]);
  }
  assert.deepEqual(write({ a: -1, b: -0.5, c: -1e-9, d: '1-1', e: 'a=b' }).cells, [
    '-1',
    '-0.5',
    '-1e-9',
    '1-1',
    'a=b',
  ]);
  const error = { code: 'x', message: '=cmd' };
  assert.equal(write({}, { status: 'error', error }).fixed?.[6], "'=cmd");
});
