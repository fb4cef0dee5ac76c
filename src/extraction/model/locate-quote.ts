import { QuoteIndex, type QuotePlace } from './quote-index.ts';

const indexes = new WeakMap<readonly string[], QuoteIndex>();

/**
 * Where a quote stands in a paper, or undefined: see `QuoteIndex.locate`. The index of a paper is made once and kept as long
 * as its array of pages, which must not change meanwhile.
 */
export function locateQuote(pages: readonly string[], quote: string): QuotePlace | undefined {
  let index = indexes.get(pages);
  if (index === undefined) {
    index = new QuoteIndex(pages);
    indexes.set(pages, index);
  }
  return index.locate(quote);
}
