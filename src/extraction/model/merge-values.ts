import { fold } from '../cast-value.ts';
import type { Alternative } from '../engine.ts';
import type { ModelFieldValue } from './ground-answer.ts';

const MAX_ALTERNATIVES = 10;

/**
 * One value of what the parts of a paper gave for a field, in the order in which the parts were read (by their sections'
 * rank): the first that is grounded, else the first that is not, else that the paper does not say, else nothing. Other
 * grounded values are kept as alternatives, so that a contradiction shows.
 */
export function mergeValues(values: readonly ModelFieldValue[]): ModelFieldValue | undefined {
  const found = values.filter(({ status }) => status === 'found');
  const [best, ...others] = found;
  if (best === undefined) {
    return (
      values.find(({ status }) => status === 'ungrounded') ??
      values.find(({ status }) => status === 'not_reported') ??
      values[0]
    );
  }
  const known = new Set([spelling(best)]);
  const alternatives: Alternative[] = [];
  for (const other of others) {
    const { page, start, end } = other;
    if (known.has(spelling(other)) || page === null || start === null || end === null) continue;
    known.add(spelling(other));
    alternatives.push({ value: textOf(other), page, start, end });
  }
  return alternatives.length === 0 ? best : { ...best, alternatives: alternatives.slice(0, MAX_ALTERNATIVES) };
}

function textOf({ value }: ModelFieldValue): string {
  return Array.isArray(value) ? value.join('; ') : String(value);
}

/** Case and dashes are no contradiction, and neither is the order of a list. */
function spelling({ value }: ModelFieldValue): string {
  return Array.isArray(value) ? value.map(fold).sort().join('\n') : fold(String(value));
}
