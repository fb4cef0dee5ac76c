import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { isGrounded } from '../../src/extraction/grounding.ts';
import { patternFault } from '../../src/extraction/rules/field-pattern.ts';
import { extract, field, textDocument } from './support.ts';

const PAPER = [
  'TITLE: Aspirin for headache: a double-blind randomised controlled trial',
  'METHODS',
  'Patients received 500 mg of aspirin daily. The primary outcome was freedom from pain at two hours.',
  'RESULTS',
  'A total of 1,204 patients were randomised. Pain was gone in 52.5% of them on 12 March 2015.',
  'FUNDING',
  'The trial was funded by the Example Foundation (grant 12).',
].join('\n');

describe('fields with a pattern', () => {
  const dose = field('dose', 'integer', { pattern: '(\\d+) mg of (?i:ASPIRIN)' });

  test('the first group is the value, in the type of the field, with its quote and place', () => {
    const { dose: value } = extract(PAPER, dose);
    assert.equal(value?.value, 500);
    assert.equal(value?.status, 'found');
    assert.equal(value?.method, 'pattern');
    assert.equal(value?.quote, 'Patients received 500 mg of aspirin daily.');
    assert.equal(PAPER.slice(value?.start ?? 0, value?.end ?? 0), value?.quote);
  });
  test('a pattern that looks through the rest of the text at each of its letters is given up in time', () => {
    const text = 'a word and another '.repeat(10_000);
    const startedAt = performance.now();
    const slow = field('slow', 'list', { pattern: '(?s)[a-y](?:.*\\d{5}Z)?' });
    assert.throws(() => extract(text, slow), { code: 'pattern_too_slow', errorClass: 'permanent' });
    assert.ok(performance.now() - startedAt < 20_000);
  });
  test('without a group the whole match is the value', () => {
    assert.equal(extract(PAPER, field('d', 'date', { pattern: '\\d+ March \\d+' })).d?.value, '2015-03-12');
  });
  test('a pattern wins over a rule', () => {
    assert.equal(
      extract(PAPER, field('title', 'text', { pattern: 'Example \\w+' })).title?.value,
      'Example Foundation',
    );
  });
  test('a match that is not of the type is no value', () => {
    const { x } = extract(PAPER, field('x', 'integer', { pattern: 'of (\\w+) daily' }));
    assert.deepEqual([x?.status, x?.value], ['not_reported', null]);
  });
  test('a list collects every match, each with a place', () => {
    const { all } = extract(PAPER, field('all', 'list', { pattern: '\\d+ mg|5\\d\\.\\d%' }));
    assert.deepEqual(all?.value, ['500 mg', '52.5%']);
    assert.equal(all?.evidence?.length, 1);
  });
  test('a pattern that RE2 refuses is a permanent error, and can be found before', () => {
    assert.throws(() => extract(PAPER, field('x', 'text', { pattern: '(?<=a)b(' })), { code: 'pattern_invalid' });
    assert.equal(typeof patternFault('('), 'string');
    assert.equal(patternFault('a+'), undefined);
  });
  test('a pattern cannot stop a worker', () => {
    const started = performance.now();
    extract('a'.repeat(200_000), field('x', 'text', { pattern: '(a+)+b' }));
    assert.ok(performance.now() - started < 5000);
  });
});

describe('fields without a rule', () => {
  test('get no value but the passages that may answer, best first, with their places', () => {
    const { primary_outcome: value } = extract(
      PAPER,
      field('primary_outcome', 'text', { description: 'Main outcome' }),
    );
    assert.deepEqual([value?.status, value?.value, value?.method], ['unanswered', null, null]);
    assert.ok(value?.passages && value.passages.length >= 1 && value.passages.length <= 3);
    assert.match(value.passages[0]?.text ?? '', /The primary outcome was freedom from pain/);
    for (const { page, start, end, text } of value.passages) {
      assert.equal(page, 1);
      assert.equal(PAPER.slice(start, end), text);
      assert.ok(text.length <= 600);
    }
  });
  test('have an empty list where nothing fits', () => {
    assert.deepEqual(extract('Birds sing.', field('zzz', 'text')).zzz?.passages, []);
  });
});

describe('the last gate', () => {
  const place = { page: 1, start: 0, end: 20 };
  const pages = ['There were 128 women.'];
  const quote = pages[0]?.slice(0, 20) ?? '';

  test('a number must stand as a number of its own', () => {
    assert.equal(isGrounded(pages, { ...place, value: 128, quote }), true);
    assert.equal(isGrounded(pages, { ...place, value: 12, quote }), false);
  });
  test('a quote must be an exact piece of its page', () => {
    assert.equal(isGrounded(pages, { ...place, start: 1, value: 128, quote }), false);
    assert.equal(isGrounded(pages, { ...place, page: 2, value: 128, quote }), false);
  });
  test('a text is compared without case, white space and dashes', () => {
    const text = 'a Double\u2010\nBlind trial';
    assert.equal(isGrounded([text], { page: 1, start: 0, end: text.length, value: 'double-blind', quote: text }), true);
  });
});

test('every field has an entry in the order of the template, whatever its key is', () => {
  const data = extract(textDocument(PAPER), field('zeta', 'text'), field('__proto__', 'text'), field('title', 'text'));
  assert.deepEqual(Object.keys(data), ['zeta', '__proto__', 'title']);
});

test('a rule that finds nothing says so, and gives no passages', () => {
  const { doi } = extract(PAPER, field('doi', 'text'));
  assert.deepEqual(doi, {
    value: null,
    status: 'not_reported',
    quote: null,
    page: null,
    start: null,
    end: null,
    method: 'rule:doi',
    confidence: null,
  });
});

describe('a text of megabytes', () => {
  const fields = ['title', 'doi', 'registration_number', 'blinding', 'funding'].map((key) =>
    field(key, key === 'blinding' ? 'list' : 'text'),
  );
  const all = [...fields, field('randomised', 'boolean'), field('number_randomised', 'integer')];
  const repeated = [
    'a',
    '1',
    ' ',
    '\n',
    '-',
    '10.1234/',
    'NCT 0',
    '12 old patients ',
    'randomised, a, ',
    '(n = 12 ',
    '# ',
    'assessors a b ',
  ];

  for (const unit of repeated) {
    test(`of ${JSON.stringify(unit)} takes time by its length alone`, () => {
      // A quadratic step would take minutes.
      const started = performance.now();
      extract(`A title of three words\n${unit.repeat(2_000_000 / unit.length)}`, ...all);
      assert.ok(performance.now() - started < 5000);
    });
  }
});
