import type { TemplateField } from '../../templates/template.ts';
import type { DocumentText } from '../document-text.ts';
import type { Alternative, Place } from '../engine.ts';
import type { Outline, Section } from '../sections.ts';

/** What every rule is given: the pages, and where in the paper a place is. */
export type Paper = { text: DocumentText; outline: Outline };

/** A value with the place of the words that it rests on; the engine turns it into a quote. */
export type Finding = {
  value: string | number | boolean | string[];
  page: number;
  /** Offsets of the evidence, which the quote will contain. */
  start: number;
  end: number;
  confidence: number;
  /**
   * What must stand in the quote, in any order, for the value to count as grounded. Compared without case, white space
   * and dashes.
   */
  evidence: string[];
  /** For a list: each entry's own place and evidence, in the order of the value. */
  entries?: (Place & { evidence: string[] })[];
  /** Other candidates that stand in the paper. */
  alternatives?: Alternative[];
};

export type Rule = {
  /** Becomes `method` with `rule:` before it. */
  name: string;
  /** The best value of this paper, in the rule's own type; undefined where the paper does not say. */
  find(paper: Paper, field: TemplateField): Finding | undefined;
};

export type PlacedMatch = { page: number; start: number; end: number; match: RegExpExecArray; section: Section };

/** Every match of a global pattern on every page, with the section that it stands in. */
export function* matchesOf(paper: Paper, pattern: RegExp): Generator<PlacedMatch> {
  for (const [index, text] of paper.text.pages.entries()) {
    for (const match of text.matchAll(pattern)) {
      const start = match.index;
      yield {
        page: index + 1,
        start,
        end: start + match[0].length,
        match,
        section: paper.outline.at(index + 1, start),
      };
    }
  }
}

/** Up to `length` characters before a place. */
export function before(paper: Paper, place: { page: number; start: number }, length: number): string {
  return paper.text.pages[place.page - 1]?.slice(Math.max(0, place.start - length), place.start) ?? '';
}

/** Up to `length` characters after a place. */
export function after(paper: Paper, place: { page: number; end: number }, length: number): string {
  return paper.text.pages[place.page - 1]?.slice(place.end, place.end + length) ?? '';
}
