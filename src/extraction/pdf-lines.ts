import { cleanText, type SizedLine } from './document-text.ts';
import { headingOf } from './sections.ts';

/** The part of a PDF reader's text item that is used here. */
export type PdfTextItem = { str: string; transform: number[]; width: number; height: number; hasEOL: boolean };

/** One printed line: its words, the size of most of its letters, and where its baseline begins, in points. */
export type PdfLine = { text: string; size: number; x: number; y: number };

/** Gathers the items of a page into printed lines, in the order in which the file has them. */
export function linesOfPage(items: readonly PdfTextItem[]): PdfLine[] {
  const lines: PdfLine[] = [];
  let current: PdfTextItem[] = [];
  for (const item of items) {
    current.push(item);
    if (item.hasEOL) {
      lines.push(lineOf(current));
      current = [];
    }
  }
  if (current.length > 0) lines.push(lineOf(current));
  return lines.filter((line) => line.text !== '');
}

function lineOf(items: readonly PdfTextItem[]): PdfLine {
  const lettersBySize = new Map<number, number>();
  for (const item of items) {
    const size = Math.round(sizeOf(item) * 10) / 10;
    lettersBySize.set(size, (lettersBySize.get(size) ?? 0) + item.str.trim().length);
  }
  const [size] = [...lettersBySize].reduce((best, entry) => (entry[1] > best[1] ? entry : best), [0, 0]);
  let text = '';
  for (const item of items) {
    // A raised note number must not grow into the number before it: "785" with note 12 is not "78512".
    const isNote = sizeOf(item) < size * 0.85 && /^\d/.test(item.str) && /\d$/.test(text);
    text += isNote ? ` ${item.str}` : item.str;
  }
  const first = items.find((item) => item.str.trim() !== '') ?? items[0];
  return {
    text: cleanText(text.replaceAll('\u00ad', '-').replaceAll('\f', ' ')).replace(/\s+/g, ' ').trim(),
    size,
    x: first?.transform[4] ?? 0,
    y: first?.transform[5] ?? 0,
  };
}

function sizeOf(item: PdfTextItem): number {
  return Math.hypot(item.transform[2] ?? 0, item.transform[3] ?? 0) || item.height;
}

/**
 * Writes the lines of a page as text: the lines of a paragraph are joined by a space, words divided at a line's end are
 * put together, and anything else stands on a line of its own.
 */
export function pageFromLines(lines: readonly PdfLine[], joiner: HyphenJoiner): { text: string; lines: SizedLine[] } {
  let text = '';
  const placed: SizedLine[] = [];
  let previous: PdfLine | undefined;
  for (const line of lines) {
    if (previous) {
      if (!isSameParagraph(previous, line)) text += '\n';
      else if (!text.endsWith('-')) text += ' ';
      else {
        const join = joiner.join(previous.text, line.text);
        if (join === 'drop hyphen') text = text.slice(0, -1);
        if (join === 'keep apart') text += ' ';
      }
    }
    const start = text.length;
    text += line.text;
    placed.push({ start, end: text.length, size: line.size });
    previous = line;
  }
  // A dropped hyphen leaves the line that it ended one character too long.
  return { text, lines: placed.map((line, index) => ({ ...line, end: Math.min(line.end, nextStart(placed, index)) })) };
}

function nextStart(lines: readonly SizedLine[], index: number): number {
  return lines[index + 1]?.start ?? Number.POSITIVE_INFINITY;
}

/** Two lines belong together when they are set alike and follow each other closely, or the sentence runs on. */
function isSameParagraph(previous: PdfLine, line: PdfLine): boolean {
  const size = Math.max(previous.size, line.size);
  const alike = Math.abs(previous.size - line.size) <= size * 0.08;
  if (!alike) return false;
  // "Methods" alone on a line is a heading even where it is set like the text.
  if (headingOf(previous.text) || headingOf(line.text)) return false;
  const step = previous.y - line.y;
  if (step >= -size * 0.5 && step <= size * 1.75) return true;
  // The next column or a picture in between: only a sentence that visibly goes on is joined.
  return /[\p{L},;-]$/u.test(previous.text) && /^[\p{Ll}(]/u.test(line.text) && line.text.length > 20;
}

type Join = 'drop hyphen' | 'keep hyphen' | 'keep apart';

/** First parts after which a hyphen belongs to the word even if the paper never writes it within one line. */
const COMPOUND_STARTS = new Set(
  `all anti break case co cost cross dose double evidence ex face follow full half health high home hospital in inter intra
  large life long low meta mid multi near non one open over patient placebo post pre quasi random re real risk school self
  semi short single small so sub time triple two three four un up well whole world`.split(/\s+/),
);

/**
 * Decides what a hyphen at a line's end means. The paper itself is the best dictionary: a word that it writes elsewhere
 * within a line, with or without the hyphen, is written so here too.
 */
export class HyphenJoiner {
  readonly #words = new Set<string>();

  constructor(pages: readonly (readonly PdfLine[])[]) {
    for (const lines of pages) {
      for (const { text } of lines) {
        for (const [word] of text.toLowerCase().matchAll(/[\p{L}\d]{1,40}(?:-[\p{L}\d]{1,40}){0,3}(?!-)/gu)) {
          this.#words.add(word);
        }
      }
    }
  }

  join(lineBefore: string, lineAfter: string): Join {
    const head = /([\p{L}\d]{1,40})-$/u.exec(lineBefore.slice(-41))?.[1];
    const tail = /^[\p{L}\d]{1,40}/u.exec(lineAfter)?.[0];
    if (!head || !tail) return /\s-$/.test(lineBefore) ? 'keep apart' : 'keep hyphen';
    if (/\d$/.test(head) || !/^\p{Ll}/u.test(tail)) return 'keep hyphen';
    // "short- and long-term": the hyphen stands for a word to come.
    if (/^(?:and|or|to)$/.test(tail)) return 'keep apart';
    const lower = head.toLowerCase();
    const whole = this.#words.has(lower + tail.toLowerCase());
    const hyphenated = this.#words.has(`${lower}-${tail.toLowerCase()}`);
    if (whole !== hyphenated) return whole ? 'drop hyphen' : 'keep hyphen';
    return COMPOUND_STARTS.has(lower) ? 'keep hyphen' : 'drop hyphen';
  }
}
