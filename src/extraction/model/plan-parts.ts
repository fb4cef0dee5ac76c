import { permanent } from '../../errors.ts';
import type { DocumentText } from '../document-text.ts';
import { Outline, type Section } from '../sections.ts';
import { sentencesOf } from '../sentences.ts';
import { squeeze } from './prompt.ts';
import { estimateTokens } from './tokens.ts';

/** Beyond this a paper is no paper, and asking for it costs too much. */
export const MAX_PARTS = 64;
/** Longer paragraphs, such as whole sections on one line, may be cut between sentences. */
const MAX_UNIT_LENGTH = 2000;
/** How much of a part's end is said again at the beginning of the next, in tokens, and as a share of a part. */
const OVERLAP_TOKENS = 200;
const OVERLAP_SHARE = 0.1;

/** Which sections are read first, and win where parts disagree. Within a rank, in the paper's order. */
const RANKS: Record<Section, number> = {
  front: 0,
  abstract: 0,
  registration: 1,
  methods: 1,
  results: 2,
  back: 3,
  introduction: 4,
  discussion: 4,
  references: 5,
};

type Unit = { text: string; tokens: number; rank: number; position: number };

/**
 * The texts to send for one paper, each of at most so many tokens.
 *
 * A paper that fits is one text in its own order. One that does not is parted: title page and abstract first, then
 * registration and methods, results, back matter, introduction and discussion, references; cut at the ends of paragraphs,
 * or of sentences where a paragraph is longer than 2,000 characters; each part begins with the last 200 tokens (at most a
 * tenth of a part) of the one before, where it goes on from there. All of the paper is sent, whatever its length.
 *
 * @throws ExtractionError permanent `document_too_long` where that would take more than 64 parts
 */
export function planParts(document: DocumentText, maxTokens: number): string[] {
  // Before anything is done with a hundred megabytes.
  const length = document.pages.reduce((sum, page) => sum + page.length, 0);
  if (length > MAX_PARTS * maxTokens * 40) throw tooLong();
  const pages = document.pages.map(squeeze);
  const whole = pages.join('\n\n').trim();
  if (estimateTokens(whole) <= maxTokens) return [whole];
  const units = unitsOf({ ...document, pages }, maxTokens);
  units.sort((a, b) => a.rank - b.rank || a.position - b.position);
  const parts: Unit[][] = [];
  let part: Unit[] = [];
  let tokens = 0;
  for (const unit of units) {
    if (part.length > 0 && tokens + unit.tokens > maxTokens) {
      parts.push(part);
      if (parts.length === MAX_PARTS) throw tooLong();
      part = overlapOf(part, unit, maxTokens);
      tokens = part.reduce((sum, { tokens }) => sum + tokens, 0);
    }
    part.push(unit);
    tokens += unit.tokens;
  }
  if (part.length > 0) parts.push(part);
  return parts.map((units) => units.map(({ text }) => text).join('\n'));
}

function overlapOf(part: readonly Unit[], next: Unit, maxTokens: number): Unit[] {
  const most = Math.min(OVERLAP_TOKENS, maxTokens * OVERLAP_SHARE, maxTokens - next.tokens);
  const overlap: Unit[] = [];
  let tokens = 0;
  let { position } = next;
  for (const unit of part.toReversed()) {
    tokens += unit.tokens;
    if (unit.position !== position - 1 || tokens > most) break;
    overlap.unshift(unit);
    position = unit.position;
  }
  return overlap;
}

/** Paragraphs, or sentences together where a paragraph is too long; each in one section. */
function unitsOf(document: DocumentText, maxTokens: number): Unit[] {
  const outline = new Outline(document);
  const units: Unit[] = [];
  document.pages.forEach((page, index) => {
    const add = (start: number, end: number): void => {
      const text = page.slice(start, end);
      const tokens = estimateTokens(text) + 1;
      // A single sentence that is longer than a part: a table, or no text at all.
      if (tokens > maxTokens && end - start > 1) {
        const middle = start + Math.floor((end - start) / 2);
        const isPair = /[\udc00-\udfff]/.test(page.charAt(middle));
        add(start, isPair ? middle - 1 : middle);
        add(isPair ? middle - 1 : middle, end);
      } else {
        units.push({ text, tokens, rank: RANKS[outline.at(index + 1, start)], position: units.length });
      }
    };
    for (const { start, end } of paragraphsOf(page)) {
      if (end - start <= MAX_UNIT_LENGTH) {
        add(start, end);
        continue;
      }
      for (const group of sentenceGroups(page, start, end, (at) => outline.at(index + 1, at)))
        add(group.start, group.end);
    }
  });
  return units;
}

/** Parted by empty lines, of which `squeeze` leaves one. */
function* paragraphsOf(page: string): Generator<{ start: number; end: number }> {
  let start = 0;
  for (const text of page.split('\n\n')) {
    if (text.trim() !== '') yield { start, end: start + text.length };
    start += text.length + 2;
  }
}

function* sentenceGroups(
  page: string,
  from: number,
  to: number,
  sectionAt: (offset: number) => Section,
): Generator<{ start: number; end: number }> {
  let group: { start: number; end: number; section: Section } | undefined;
  for (const sentence of sentencesOf(page.slice(from, to))) {
    const [start, end] = [from + sentence.start, from + sentence.end];
    const section = sectionAt(start);
    if (group !== undefined && group.section === section && end - group.start <= MAX_UNIT_LENGTH) group.end = end;
    else {
      if (group !== undefined) yield group;
      group = { start, end, section };
    }
  }
  if (group !== undefined) yield group;
}

function tooLong() {
  return permanent('document_too_long', `the document is longer than ${MAX_PARTS} of the model's prompts`);
}
