const UNITS: readonly string[] =
  `zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
  sixteen seventeen eighteen nineteen`.split(/\s+/);
const TENS: readonly string[] = '- - twenty thirty forty fifty sixty seventy eighty ninety'.split(' ');

const UNDER_TWENTY = UNITS.slice(1).join('|');
const TEN = TENS.slice(2).join('|');
const UNDER_HUNDRED = `(?:(?:${TEN})(?:[\\s-]?(?:${UNITS.slice(1, 10).join('|')}))?|${UNDER_TWENTY})`;

/** Source of a pattern for a whole number in figures or, up to 999, in English words. Case-insensitive. */
export const NUMBER = `(?<![\\d.,·-])(?:\\d{1,3}(?:[, ]\\d{3}){1,2}(?![\\d])|\\d{1,7})(?![\\d%]|[.,·]\\d|\\s?%)|\\b(?:(?:${UNITS.slice(1, 10).join('|')}|a) hundred(?: and ${UNDER_HUNDRED}| ${UNDER_HUNDRED})?|${UNDER_HUNDRED})\\b`;

/** The number that figures or English words stand for; undefined where they are none. */
export function parseNumber(text: string): number | undefined {
  if (/^\d/.test(text)) {
    const number = Number(text.replace(/[,\s]/g, ''));
    return Number.isSafeInteger(number) ? number : undefined;
  }
  let number = 0;
  for (const word of text.toLowerCase().split(/[\s-]+/)) {
    if (word === 'and') continue;
    if (word === 'a') number += 1;
    else if (word === 'hundred') number *= 100;
    else {
      const unit = UNITS.indexOf(word);
      const ten = TENS.indexOf(word);
      if (unit < 0 && ten < 0) return undefined;
      number += unit >= 0 ? unit : ten * 10;
    }
  }
  return number > 0 ? number : undefined;
}
