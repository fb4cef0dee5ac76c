import type { FieldType } from '../../templates/template.ts';
import { castValue } from '../cast-value.ts';
import { stem } from '../passages.ts';
import { NUMBER, parseNumber } from '../rules/number-words.ts';
import { foldText, withoutCitations } from './fold-text.ts';

/**
 * How a value stands to its quote:
 *
 * - `verbatim`  it stands in it
 * - `partial`   a text of which at least half of the words and every number stand in it
 * - `inferred`  an enum or boolean, which may follow from any words
 * - `none`      nothing of the kind
 */
export type Support = 'verbatim' | 'partial' | 'inferred' | 'none';

const WORST_FIRST: readonly Support[] = ['none', 'inferred', 'partial', 'verbatim'];

export function supportOf(
  value: string | number | boolean | readonly string[],
  type: FieldType,
  quote: string,
): Support {
  if (typeof value === 'boolean') return 'inferred';
  if (typeof value === 'number') return numbersIn(quote).has(Math.abs(value)) ? 'verbatim' : 'none';
  if (typeof value !== 'string') {
    const supports = value.map((entry) => entrySupport(entry, quote));
    return WORST_FIRST.find((support) => supports.includes(support)) ?? 'none';
  }
  if (type === 'date') return hasDate(value, quote) ? 'verbatim' : 'none';
  const support = textSupport(value, quote);
  return type === 'enum' && support !== 'verbatim' ? 'inferred' : support;
}

/** Of a list's entry more than half must stand: "cluster headache" is not in the quote because "migraine headache" is. */
export function entrySupport(entry: string, quote: string): Support {
  return textSupport(entry, quote, 0.51);
}

function textSupport(value: string, quote: string, minShare = 0.5): Support {
  const folded = foldText(value).text;
  if (folded !== '' && foldText(quote).text.includes(folded)) return 'verbatim';
  const printed = numbersIn(quote);
  for (const number of numbersIn(value)) if (!printed.has(number)) return 'none';
  const words = wordsIn(value);
  const known = new Set(wordsIn(quote));
  const share = words.filter((word) => known.has(word)).length / Math.max(1, words.length);
  return share >= minShare ? 'partial' : 'none';
}

function wordsIn(text: string): string[] {
  const words =
    text
      .normalize('NFKC')
      .toLowerCase()
      .match(/[\p{L}\p{N}]{2,40}/gu) ?? [];
  return words.filter((word) => !SMALL_WORDS.has(word)).map((word) => stem(word.replace(/isation/, 'ization')));
}

const SMALL_WORDS = new Set('a an and at by for from in is of on or the to was were with'.split(' '));

/** Every number that a text may be read to hold: thousands parted or not, decimal comma or not, in words. */
function numbersIn(text: string): Set<number> {
  const numbers = new Set<number>();
  const plain = withoutCitations(text.normalize('NFKC'));
  const add = (printed: string): void => {
    const number = castValue(printed, { type: 'number' });
    if (typeof number === 'number') numbers.add(Math.abs(number));
  };
  for (const [printed] of plain.matchAll(/\d{1,3}(?:[, ]\d{3}){1,3}(?!\d)|\d{1,15}(?:[.·]\d{1,15})?/g)) {
    add(printed);
    // "12 345" may be two numbers.
    if (printed.includes(' ')) for (const part of printed.split(' ')) add(part);
  }
  for (const [printed] of plain.matchAll(/(?<![\d.,])[.·]\d{1,15}/g)) add(printed);
  for (const [printed] of plain.matchAll(/\d{1,15},\d{1,2}(?!\d)/g)) add(printed.replace(',', '.'));
  for (const [printed] of plain.matchAll(new RegExp(NUMBER, 'gi'))) {
    const number = parseNumber(printed);
    if (number !== undefined) numbers.add(number);
  }
  return numbers;
}

const MONTHS = 'january february march april may june july august september october november december'.split(' ');

/** Day, month and year, in whatever order and whether the month is a name or a number. */
function hasDate(isoDate: string, quote: string): boolean {
  const [year = '', month = '', day = ''] = isoDate.split('-');
  const numbers = numbersIn(quote);
  if (!numbers.has(Number(year)) && !new RegExp(`[/.-]${year.slice(2)}\\b`).test(quote)) return false;
  const name = MONTHS[Number(month) - 1] ?? '';
  const hasMonth = new RegExp(`\\b${name.slice(0, 3)}`, 'i').test(quote) || partsOf(quote).has(Number(month));
  return hasMonth && partsOf(quote).has(Number(day));
}

/** Whole numbers as they are parted by slashes, points and hyphens in a date; the first of an ordinal. */
function partsOf(quote: string): Set<number> {
  return new Set((quote.match(/\d{1,4}/g) ?? []).map(Number));
}
