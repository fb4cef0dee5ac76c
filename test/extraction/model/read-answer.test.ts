import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseObject } from '../../../src/extraction/model/parse-object.ts';
import { readAnswer } from '../../../src/extraction/model/read-answer.ts';
import { readValue } from '../../../src/extraction/model/read-value.ts';
import { supportOf } from '../../../src/extraction/model/value-support.ts';
import { field } from '../support.ts';

test('an object is found bare, fenced, between words and behind thinking', () => {
  for (const content of [
    '{"a": 1}',
    ' \n{"a": 1}\n',
    '```json\n{"a": 1}\n```',
    'Sure: {"a": 1} Done.',
    '<think>Is it {"a": 2}?</think>\n{"a": 1}',
  ]) {
    assert.deepEqual(parseObject(content), { a: 1 }, content);
  }
  for (const content of ['', '[1]', 'null', '"a"', '{"a": ', 'none', '{a: 1}'])
    assert.equal(parseObject(content), undefined);
});

test('values are taken in the spellings of models', () => {
  const rows: [unknown, Parameters<typeof field>[1], unknown][] = [
    ['500 mg', 'number', 500],
    ['about 1,204 patients', 'integer', 1204],
    ['52·5 %', 'number', 52.5],
    ['30 to 40', 'integer', undefined],
    ['30-40', 'integer', undefined],
    [62.5, 'integer', undefined],
    ['-3.2 points', 'number', -3.2],
    ['IL6', 'number', undefined],
    [['a', 'b'], 'text', 'a; b'],
    ['March 3, 2012', 'date', '2012-03-03'],
    ['2012', 'date', undefined],
    ['yes', 'boolean', true],
    ['DOUBLE blind', 'enum', 'double-blind'],
    ['triple-blind', 'enum', undefined],
    ['a; b', 'list', ['a', 'b']],
    [{ a: 1 }, 'text', undefined],
  ];
  for (const [raw, type, expected] of rows) {
    assert.deepEqual(
      readValue(raw, field('x', type, type === 'enum' ? { enum: ['double-blind'] } : {})),
      expected,
      `${raw}`,
    );
  }
});

describe('an answer', () => {
  const read = (answer: unknown, ...fields: Parameters<typeof field>[]) =>
    readAnswer(
      JSON.stringify(answer),
      fields.map((args) => field(...args)),
    );

  test('without a value is not reported, however a model says so', () => {
    for (const said of [
      null,
      { value: null, quote: null, status: 'not_reported' },
      { value: 'guess', quote: null, status: 'not_reported' },
      { value: 'Not reported', quote: null, status: 'found' },
      { value: 'N/A' },
      { value: '' },
      {},
    ]) {
      const { value, faults } = read({ x: said }, ['x', 'text']);
      assert.deepEqual([value?.get('x'), faults], [{ kind: 'not_reported' }, []]);
    }
    assert.deepEqual(read({ x: { value: [] } }, ['x', 'list']).value?.get('x'), { kind: 'not_reported' });
    const allowed = read({ x: { value: 'not reported', quote: 'q' } }, ['x', 'enum', { enum: ['Not reported'] }]);
    assert.deepEqual(allowed.value?.get('x'), { kind: 'found', value: 'Not reported', quote: 'q' });
  });

  test('of some fields is usable, and its faults are named', () => {
    const { value, faults } = read(
      { a: 1, b: { value: 'x' }, d: { value: 2 } },
      ['a', 'text'],
      ['b', 'number'],
      ['c', 'text'],
      ['d', 'number'],
    );
    assert.deepEqual([...(value?.keys() ?? [])], ['d']);
    assert.deepEqual(faults, [
      '"a": must be an object with quote, value and status',
      '"b": value must be one number',
      'the key "c" is missing',
    ]);
  });

  test('may be wrapped, but must have some of the fields', () => {
    assert.equal(read({ fields: { x: { value: 1 } } }, ['x', 'integer']).value?.size, 1);
    assert.equal(read({ y: 1 }, ['x', 'text']).value, undefined);
    assert.equal(readAnswer('[]', [field('x', 'text')]).value, undefined);
  });

  test('has quotes of at most a thousand characters', () => {
    const answer = read({ x: { value: 'a', quote: 'word '.repeat(1000) } }, ['x', 'text']).value?.get('x');
    assert.ok(answer?.kind === 'found' && (answer.quote?.length ?? 0) <= 1000 && answer.quote?.endsWith('word'));
  });
});

test('what follows from a quote, and what does not', () => {
  const rows: [string | number | boolean | string[], Parameters<typeof field>[1], string, string][] = [
    [62, 'integer', 'sixty-two centres', 'verbatim'],
    [1204, 'integer', 'in 1 204 patients', 'verbatim'],
    [0.5, 'number', 'a dose of 0,5 mg', 'verbatim'],
    [-3.2, 'number', 'changed by −3.2 points', 'verbatim'],
    [12, 'integer', 'in 128 patients', 'none'],
    [12, 'integer', 'as others found [12]', 'none'],
    ['2011-05-03', 'date', 'on May 3rd, 2011', 'verbatim'],
    ['2011-05-03', 'date', '03/05/2011', 'verbatim'],
    ['2011-05-03', 'date', 'in May 2011', 'none'],
    ['500 mg of aspirin', 'text', 'Aspirin was given (500 mg) daily', 'partial'],
    ['400 mg of aspirin', 'text', 'Aspirin was given (500 mg) daily', 'none'],
    ['usual care', 'text', 'Aspirin was given', 'none'],
    [true, 'boolean', 'anything', 'inferred'],
    ['Parallel', 'enum', 'two groups', 'inferred'],
  ];
  for (const [value, type, quote, support] of rows)
    assert.equal(supportOf(value, type, quote), support, `${value} in ${quote}`);
});
