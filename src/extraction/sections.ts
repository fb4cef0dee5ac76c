import type { DocumentText } from './document-text.ts';

/** The part of a paper that a stretch of text belongs to, as far as rules care. */
export type Section =
  | 'front'
  | 'abstract'
  | 'introduction'
  | 'methods'
  | 'results'
  | 'discussion'
  | 'registration'
  | 'back'
  | 'references';

/**
 * Names of headings, most telling first. They are matched as the beginning of a heading's last part, so that
 * "2. Materials and methods", "BODY.METHODS.STUDY DESIGN:" and "## Methods" all count.
 */
const HEADINGS: readonly (readonly [Section, RegExp])[] = [
  ['registration', /^(?:clinical )?trials? (?:registration|registry|registered|identifier)/],
  ['references', /^(?:references|bibliography|literature cited|reference list|works cited)$/],
  ['abstract', /^(?:abstract|summary|synopsis)(?![a-z])/],
  ['introduction', /^(?:introduction|background)(?![a-z])/],
  ['methods', /^(?:(?:subjects?|patients?|materials?|participants?|study)(?:,| and| &) )?(?:methods?|design)(?![a-z])/],
  ['methods', /^(?:experimental (?:section|procedures)|objectives?|setting|participants|interventions?)$/],
  ['methods', /^(?:main )?outcome measures?$|^study design$|^statistical (?:analys[ei]s|methods)$/],
  ['results', /^(?:results|findings)(?![a-z])/],
  ['discussion', /^(?:discussion|conclusions?|limitations|comment|interpretation)(?![a-z])/],
  [
    'back',
    /^(?:acknowledge?ments?|funding|competing interests?|conflicts? of interests?|abbreviations|author contributions|authors. contributions|supporting information|supplementary materials?|data availability|pre-publication history)(?![a-z])/,
  ],
];

/** The section that a line names, if the line is a heading and nothing else. */
export function headingOf(line: string): Section | undefined {
  if (line.length > 90) return undefined;
  const name = line
    .trim()
    .replace(/^#{1,6} {0,3}/, '')
    .replace(/^\*{1,2}|[\s:.*]{1,5}$/g, '')
    .toLowerCase();
  // Dotted paths such as "body.methods.study design" count by their second part, the main section.
  const path = /^(abstract|body)\.(.{1,80})$/.exec(name);
  if (path?.[1] === 'abstract' && !path[2]?.startsWith('trial')) return 'abstract';
  const own = (path?.[2] ?? name).replace(/^(?:\d{1,2}\.?){1,3}\s{0,3}|^[ivx]{1,4}\.\s{0,3}/, '');
  if (own.split(' ').length > 8) return undefined;
  return HEADINGS.find(([, pattern]) => pattern.test(own))?.[0];
}

type Mark = { page: number; start: number; section: Section };

/** Tells the section of any place in a paper. */
export class Outline {
  readonly #marks: Mark[] = [];
  #abstract: (Mark & { end: number; seen: Set<Section> }) | undefined;

  constructor(document: DocumentText) {
    document.pages.forEach((text, index) => {
      // A heading stands on its own line, or behind `#` within a line where line breaks were lost.
      for (const match of text.matchAll(/^[^\n]{1,90}$|(?<=\s)#{1,6} [A-Za-z]{1,20}(?: [a-z]{1,20})?/gm)) {
        const section = headingOf(match[0]);
        if (section) this.#add({ page: index + 1, start: match.index, section }, match[0].length);
      }
    });
  }

  /** The section at a place. Before the first heading it is `front`: title, authors, often the abstract. */
  at(page: number, offset: number): Section {
    let low = 0;
    let high = this.#marks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const mark = this.#marks[middle];
      if (mark && (mark.page < page || (mark.page === page && mark.start <= offset))) low = middle + 1;
      else high = middle;
    }
    return this.#marks[low - 1]?.section ?? 'front';
  }

  /**
   * A structured abstract has headings of the same names as the paper itself. They follow the word "Abstract" at once, and
   * the abstract is over where one of them comes again, where the introduction begins, or where it would be too long.
   */
  #add(mark: Mark, headingLength: number): void {
    const abstract = this.#abstract;
    if (mark.section === 'abstract') {
      this.#abstract = { ...mark, end: mark.start + headingLength, seen: new Set() };
    } else if (abstract && mark.section !== 'registration') {
      const distance = mark.page === abstract.page ? mark.start - abstract.end : Number.POSITIVE_INFINITY;
      const isPart =
        abstract.seen.size === 0
          ? distance < 20
          : distance < 5000 && mark.section !== 'introduction' && !abstract.seen.has(mark.section);
      if (isPart && mark.section !== 'references' && mark.section !== 'back') {
        // Methods may have many parts there: design, setting, participants, interventions.
        if (mark.section !== 'methods') abstract.seen.add(mark.section);
        else if (abstract.seen.size === 0) abstract.seen.add('introduction');
        return;
      }
      this.#abstract = undefined;
    }
    this.#marks.push(mark);
  }
}
