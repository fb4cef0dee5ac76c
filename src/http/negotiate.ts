import type { Context } from 'hono';
import { accepts } from 'hono/accepts';

/**
 * The media type to answer with, by the Accept header (RFC 9110, 12.5.1): for each type the most specific range that names it
 * has the say, and of equals the first offered wins. Undefined when the client takes none. Without the header: the first.
 */
export function negotiate<const T extends string>(c: Context, offered: readonly [T, ...T[]]): T | undefined {
  const none = '';
  const type = accepts(c, {
    header: 'Accept',
    supports: [...offered],
    default: offered[0],
    match: (ranges) => {
      const [best] = offered
        .map((type) => ({ type, quality: qualityOf(type, ranges) }))
        .filter(({ quality }) => quality > 0)
        .sort((a, b) => b.quality - a.quality);
      return best?.type ?? none;
    },
  });
  return offered.find((each) => each === type);
}

function qualityOf(type: string, ranges: readonly { type: string; q: number }[]): number {
  for (const wanted of [type, `${type.split('/', 1)[0]}/*`, '*/*']) {
    const range = ranges.find((each) => each.type.toLowerCase() === wanted);
    if (range !== undefined) return range.q;
  }
  return 0;
}
