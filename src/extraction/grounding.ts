import { castValue, fold } from './cast-value.ts';
import type { FieldValue } from './engine.ts';

/**
 * Whether a value really stands in the paper: the last gate before a value leaves an engine.
 *
 * The quote must be an exact piece of its page, and every piece of `evidence` must stand in it, compared without case,
 * white space and dashes. Without `evidence` the value itself must, so pass the printed words where they are written
 * differently from the value ("sixty-two" for 62).
 */
export function isGrounded(
  pages: readonly string[],
  field: Pick<FieldValue, 'value' | 'quote' | 'page' | 'start' | 'end'>,
  evidence: readonly string[] = evidenceOf(field.value),
): boolean {
  const { quote, page, start, end } = field;
  if (field.value === null || quote === null || page === null || start === null || end === null) return false;
  if (quote.trim() === '' || pages[page - 1]?.slice(start, end) !== quote) return false;
  const folded = fold(quote);
  return evidence.every((part) => standsIn(part, folded, quote)) && evidence.length > 0;
}

function evidenceOf(value: FieldValue['value']): string[] {
  if (Array.isArray(value)) return value;
  return typeof value === 'string' || typeof value === 'number' ? [String(value)] : [];
}

function standsIn(part: string, foldedQuote: string, quote: string): boolean {
  const folded = fold(part);
  if (folded === '') return false;
  // A number must stand as a number of its own: 12 does not stand in "128".
  if (/^\d+(?:\.\d+)?$/.test(folded)) return numbersIn(quote).includes(Number(folded)) || hasDigits(quote, folded);
  return foldedQuote.includes(folded);
}

function numbersIn(quote: string): number[] {
  const printed = quote.match(/(?<![\d.,·])\d{1,3}(?:[, ]\d{3}){1,3}(?!\d)|\d{1,15}(?:[.·]\d{1,15})?/g) ?? [];
  return printed.map((text) => castValue(text, { type: 'number' })).filter((number) => typeof number === 'number');
}

/** Long digit strings, such as registration numbers, may be printed with blanks and dashes inside. */
function hasDigits(quote: string, digits: string): boolean {
  if (digits.length < 5) return new RegExp(`(?<!\\d)${digits.replace('.', '\\.')}(?!\\d)`).test(quote);
  return fold(quote).includes(digits);
}
