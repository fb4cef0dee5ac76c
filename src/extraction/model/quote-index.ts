import type { Place } from '../engine.ts';
import { findSimilar, occurrences } from './find-similar.ts';
import { type FoldedText, foldText, withoutCitations } from './fold-text.ts';
import { splitAtEllipses } from './split-at-ellipses.ts';

/** Letters and digits. A shorter quote says nothing. */
const MIN_LENGTH = 4;
/** A shorter quote must stand in the paper only once. */
const MIN_REPEATED_LENGTH = 8;
/** A shorter quote must begin and end with whole words. */
const MIN_PARTIAL_LENGTH = 16;
const MAX_PLACES = 50;
/** How far the pieces around an ellipsis may be apart, in letters and digits. */
const MAX_GAP = 1500;

/** A place of a quote, and how sure it is: letter by letter, or with errors. */
export type QuotePlace = Place & { isExact: boolean };

/** A stretch of the folded text. */
type Span = { from: number; to: number };

/** Finds the places of many quotes in one paper. */
export class QuoteIndex {
  readonly #pages: readonly string[];
  readonly #folded: FoldedText[];
  readonly #text: string;
  /** Where each page begins in `#text`. */
  readonly #offsets: number[] = [];

  constructor(pages: readonly string[]) {
    this.#pages = pages;
    this.#folded = pages.map(foldText);
    let offset = 0;
    for (const { text } of this.#folded) {
      this.#offsets.push(offset);
      offset += text.length;
    }
    this.#text = this.#folded.map(({ text }) => text).join('');
  }

  /**
   * Where a quote stands: page from 1, offsets in UTF-16 units of that page's text, as it is there.
   *
   * By letters and digits alone (see `foldText`), so that white space, line breaks, hyphenation, ligatures, quotation marks,
   * dashes, accents, case, markup and citation marks do not matter. Of several places the one that is most like the quote,
   * else the first. An ellipsis in the quote stands for up to 1,500 letters on the same page. A quote of 24 letters or more
   * may have a few errors (see `findSimilar`), but none in a number. A quote that runs over a page's end is given by the
   * longer of its parts.
   *
   * Undefined where it does not stand, or is too short to be sure: under four letters and digits; under eight and not
   * unique; under sixteen and not of whole words.
   */
  locate(quote: string): QuotePlace | undefined {
    const exact = this.#exact(quote);
    if (exact !== undefined) return this.#place(exact, quote, true);
    const pieces = splitAtEllipses(quote);
    const chained = pieces.length > 1 ? this.#chained(pieces) : undefined;
    if (chained !== undefined) return this.#place(chained, quote, true);
    const similar = this.#similar(pieces.length === 1 ? (pieces[0] ?? quote) : quote);
    return similar === undefined ? undefined : this.#place(similar, quote, false);
  }

  #exact(quote: string): Span | undefined {
    const { text } = foldText(quote);
    if (text.length < MIN_LENGTH) return undefined;
    let spans = this.#spans(text, 0, this.#text.length);
    if (text.length < MIN_PARTIAL_LENGTH) spans = spans.filter((span) => this.#isWhole(span));
    if (text.length < MIN_REPEATED_LENGTH && spans.length !== 1) return undefined;
    if (spans.length < 2) return spans[0];
    const [plain, words] = [plainOf(quote), wordsOf(quote)];
    return (
      spans.find((span) => plainOf(this.#slice(span)) === plain) ??
      spans.find((span) => wordsOf(this.#slice(span)) === words) ??
      spans[0]
    );
  }

  /** The pieces in their order, each soon behind the other; those that are too short to be sure stand with the others. */
  #chained(pieces: readonly string[]): Span | undefined {
    const folded = pieces.map((piece) => foldText(piece).text).filter((text) => text.length >= MIN_LENGTH);
    const [first, ...others] = folded;
    if (first === undefined || !folded.some((text) => text.length >= MIN_PARTIAL_LENGTH)) return undefined;
    const begins = this.#spans(first, 0, this.#text.length);
    for (const begin of begins.length > 0 ? begins : [findSimilar(this.#text, first)]) {
      if (begin === undefined) continue;
      let { to } = begin;
      const pageEnd = this.#pageEnd(begin.from);
      const isComplete = others.every((text) => {
        const limit = Math.min(pageEnd, to + MAX_GAP + text.length);
        const next = this.#spans(text, to, limit)[0] ?? findSimilar(this.#text, text, to, limit);
        if (next !== undefined) to = next.to;
        return next !== undefined;
      });
      if (isComplete && to <= pageEnd) return { from: begin.from, to };
    }
    return undefined;
  }

  #similar(quote: string): Span | undefined {
    const span = findSimilar(this.#text, foldText(quote).text);
    if (span === undefined) return undefined;
    // A letter more or less is a slip, a figure is another fact.
    return isSubsequence(numbersOf(quote), numbersOf(this.#slice(span))) ? span : undefined;
  }

  #spans(text: string, from: number, to: number): Span[] {
    return occurrences(this.#text, text, from, to, MAX_PLACES).map((at) => ({ from: at, to: at + text.length }));
  }

  #pageOf(offset: number): number {
    let low = 0;
    let high = this.#offsets.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#offsets[middle] ?? 0) <= offset) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  #pageEnd(offset: number): number {
    return this.#offsets[this.#pageOf(offset) + 1] ?? this.#text.length;
  }

  /** The longest of the parts that a stretch has on different pages, in the page's own offsets. */
  #original({ from, to }: Span): { page: number; start: number; end: number } {
    let best = { page: -1, from, to: from };
    for (let at = from; at < to; ) {
      const end = Math.min(to, this.#pageEnd(at));
      if (end - at > best.to - best.from) best = { page: this.#pageOf(at), from: at, to: end };
      at = end;
    }
    const offset = this.#offsets[best.page] ?? 0;
    const page = this.#folded[best.page];
    return {
      page: best.page,
      start: page?.starts[best.from - offset] ?? 0,
      end: page?.ends[best.to - 1 - offset] ?? 0,
    };
  }

  #slice(span: Span): string {
    const { page, start, end } = this.#original(span);
    return this.#pages[page]?.slice(start, end) ?? '';
  }

  #isWhole(span: Span): boolean {
    const { page, start, end } = this.#original(span);
    const text = this.#pages[page] ?? '';
    return !WORD.test(text.charAt(start - 1)) && !WORD.test(text.charAt(end));
  }

  /** With what stands around it in the quote too and was folded away, such as its full stop or a citation mark. */
  #place(span: Span, quote: string, isExact: boolean): QuotePlace {
    let { page, start, end } = this.#original(span);
    const text = this.#pages[page] ?? '';
    const trimmed = quote.trim();
    const { starts, ends } = foldText(trimmed);
    const before = trimmed.slice(0, starts[0] ?? 0);
    const after = trimmed.slice(ends.at(-1) ?? trimmed.length);
    for (let at = before.length - 1; at >= 0 && isSameMark(before.charAt(at), text.charAt(start - 1)); at -= 1)
      start -= 1;
    for (let at = 0; at < after.length && isSameMark(after.charAt(at), text.charAt(end)); at += 1) end += 1;
    while (end > start && /\s/.test(text.charAt(end - 1))) end -= 1;
    while (start < end && /\s/.test(text.charAt(start))) start += 1;
    return { page: page + 1, start, end, isExact };
  }
}

const QUOTATION_MARK = /["'`“”„‘’«»]/;

function isSameMark(a: string, b: string): boolean {
  return a === b || (QUOTATION_MARK.test(a) && QUOTATION_MARK.test(b));
}

const WORD = /[\p{L}\p{N}]/u;

function plainOf(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}

function wordsOf(text: string): string {
  return text.replace(/[^\p{L}\p{N}]+/gu, '');
}

function numbersOf(text: string): string[] {
  const joined = withoutCitations(text)
    .replace(/(?<=\d)[, \u00a0\u2009](?=\d{3}(?!\d))/g, '')
    .replace(/(?<=\d)[·∙](?=\d)/g, '.');
  return joined.match(/\d+(?:\.\d+)?/g) ?? [];
}

function isSubsequence(parts: readonly string[], whole: readonly string[]): boolean {
  let next = 0;
  for (const part of whole) if (part === parts[next]) next += 1;
  return next === parts.length;
}
