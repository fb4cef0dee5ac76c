/**
 * The text of one paper, page by page, in reading order.
 *
 * This text is the reference that every quote and offset refers to. It is the paper's own text after the clean-up that
 * `cleanText` and the readers describe: a quote is an exact piece of these pages, not of the file's bytes.
 */
export type DocumentText = {
  pages: string[];
  format: 'pdf' | 'text' | 'markdown';
  /** PDFs only: the lines of the first page that holds text, with their size, for the title. */
  titlePage?: { page: number; lines: SizedLine[] };
  /** PDFs only: the title in the file's own metadata. Often wrong, so it counts only where the paper prints it. */
  metadataTitle?: string;
};

/** A printed line: offsets in its page's text, and the height of most of its letters in points. */
export type SizedLine = { start: number; end: number; size: number };

/** The longest quote, in UTF-16 units, unless the value itself is longer. */
export const MAX_QUOTE_LENGTH = 300;

/**
 * Makes a text safe for JSON and PostgreSQL and easy to search.
 *
 * - line ends become `\n`, and every other kind of blank (no-break, thin, ideographic, tab) a plain space
 * - invisible characters (soft hyphen, zero-width space, byte-order mark) are dropped
 * - NUL, other control characters become a space, lone surrogates U+FFFD
 *
 * Form feeds are kept: they end pages.
 */
export function cleanText(text: string): string {
  return (
    text
      .toWellFormed()
      .replace(/\r\n?|\u0085|\u2028|\u2029/g, '\n')
      .replace(/[\u00ad\u200b-\u200f\u2060\ufeff]/g, '')
      // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced here
      .replace(/[\u0000-\u0009\u000b\u000e-\u001f\u007f-\u0084\u0086-\u009f]/g, ' ')
      .replace(/[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]/g, ' ')
  );
}

/** Runs of white space become one space; the ends are trimmed. */
export function collapseSpace(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}

/**
 * The sentence around a piece of a page, as offsets: at most `maxLength` long, but never shorter than the piece.
 *
 * Only `maxLength` characters on either side are looked at, so the cost does not depend on the page.
 */
export function quoteAround(
  pageText: string,
  start: number,
  end: number,
  maxLength = MAX_QUOTE_LENGTH,
): { start: number; end: number } {
  const spare = Math.max(0, maxLength - (end - start));
  const before = pageText.slice(Math.max(0, start - spare), start);
  const sentenceStart = Math.max(lastIndexAfter(before, SENTENCE_END), 0);
  let from = start - (before.length - sentenceStart);
  // The sentence began further back than may be quoted: leave room for what follows and start at a word.
  const maxBefore = Math.max(Math.floor(spare / 2), spare - 120);
  if (start - from > maxBefore) from = nextWordStart(pageText, start - maxBefore, start);
  const after = pageText.slice(end, end + (maxLength - (end - from)));
  const stop = SENTENCE_STOP.exec(after);
  let to = end + (stop ? stop.index + (stop[1]?.length ?? 0) : after.length);
  if (!stop && to < pageText.length) to = previousWordEnd(pageText, to, end);
  while (from < start && isBlank(pageText, from)) from += 1;
  while (to > end && isBlank(pageText, to - 1)) to -= 1;
  return { start: from, end: to };
}

const SENTENCE_END = /[.!?][)\]"”’]?\s+(?=[A-Z0-9(["“])|\n+/g;
const SENTENCE_STOP = /([.!?][)\]"”’]?)(?=\s+[A-Z0-9(["“]|\s*$)|\n/;

function lastIndexAfter(text: string, pattern: RegExp): number {
  let last = -1;
  for (const match of text.matchAll(pattern)) last = match.index + match[0].length;
  return last;
}

function nextWordStart(text: string, from: number, limit: number): number {
  for (let at = from; at < limit; at += 1) if (isBlank(text, at)) return at + 1;
  return isLowSurrogate(text, from) ? from + 1 : from;
}

function previousWordEnd(text: string, to: number, limit: number): number {
  for (let at = to; at > limit; at -= 1) if (isBlank(text, at)) return at;
  return isLowSurrogate(text, to) ? to - 1 : to;
}

function isBlank(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code === 32 || (code >= 9 && code <= 13);
}

/** True where cutting at `at` would leave half a character. */
function isLowSurrogate(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff;
}
