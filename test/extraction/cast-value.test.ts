import assert from 'node:assert/strict';
import { test } from 'node:test';
import { castValue } from '../../src/extraction/cast-value.ts';
import type { TemplateField } from '../../src/templates/template.ts';

const CASES: [TemplateField['type'], unknown, unknown][] = [
  ['text', '  a \n b ', 'a b'],
  ['text', '   ', undefined],
  ['text', 'a\u0000b\ud800', 'a b\ufffd'],
  ['text', 'x'.repeat(1001), undefined],
  ['number', '1,234.5', 1234.5],
  ['number', '1 234', 1234],
  ['number', '0·5', 0.5],
  ['number', '.023', 0.023],
  ['number', '\u22123', -3],
  ['number', '1,5', undefined],
  ['number', '12 mg', undefined],
  ['number', '1e400', undefined],
  ['number', Number.NaN, undefined],
  ['integer', '1,234', 1234],
  ['integer', '2.0', 2],
  ['integer', '2.5', undefined],
  ['boolean', 'Yes', true],
  ['boolean', 'no', false],
  ['boolean', 'perhaps', undefined],
  ['date', '2015-03-12', '2015-03-12'],
  ['date', '12 March 2015', '2015-03-12'],
  ['date', '28th, October, 2013', '2013-10-28'],
  ['date', 'Dec. 2, 2013', '2013-12-02'],
  ['date', '25/12/2013', '2013-12-25'],
  ['date', '03/04/2013', undefined],
  ['date', '31 February 2013', undefined],
  ['enum', 'Double Blind', 'double-blind'],
  ['enum', 'other', undefined],
  ['list', ['a', ' b ', 'a', null], ['a', 'b']],
  ['list', 'a; b\nc', ['a', 'b', 'c']],
  ['list', [], undefined],
];

for (const [type, raw, value] of CASES) {
  test(`${type}: ${JSON.stringify(raw)?.slice(0, 40)} becomes ${JSON.stringify(value)}`, () => {
    assert.deepEqual(castValue(raw, { type, enum: ['double-blind', 'open-label'] }), value);
  });
}
