import { collapseSpace, type DocumentText, type SizedLine } from '../document-text.ts';
import { headingOf } from '../sections.ts';
import type { Finding, Rule } from './rule.ts';

/**
 * The paper's title: in a PDF the largest print on the first page, or the title of the file's metadata where the first page
 * prints it too; in a text or markdown the line that says so, the first heading, or the first line.
 */
export const title: Rule = {
  name: 'title',
  find(paper) {
    const { text } = paper;
    return text.format === 'pdf' ? (titleByMetadata(text) ?? titleBySize(text)) : titleOfText(text);
  },
};

const MAX_TITLE_LENGTH = 500;

/** Long enough to be one, and neither a section's heading nor a journal's furniture. */
function isTitle(text: string): boolean {
  const words = text.match(/\p{L}{2,}/gu)?.length ?? 0;
  if (text.length > MAX_TITLE_LENGTH || words < 3 || text.replace(/\P{L}/gu, '').length < 15) return false;
  if (headingOf(text)) return false;
  return !/^(?:doi|https?:|www\.)|\bdoi: ?10\.|©|\bcopyright\b|\bopen access\b|\bISSN\b|^(?:research|original|review)\s(?:research )?(?:article|paper)$|^vol(?:ume|\.) |all rights reserved|^(?:published|received|accepted)\b|@/i.test(
    text,
  );
}

function titleByMetadata(document: DocumentText): Finding | undefined {
  const wanted = document.metadataTitle?.match(/[\p{L}\d]+/gu);
  const page = document.titlePage?.page;
  if (!wanted || !page || wanted.length < 4 || wanted.length > 60) return undefined;
  // Compared word by word, whatever stands between them: the metadata knows no line breaks or typographic quotes.
  const words = [...(document.pages[page - 1] ?? '').slice(0, 20_000).matchAll(/[\p{L}\d]+/gu)];
  const at = words.findIndex((_, index) =>
    wanted.every((word, step) => words[index + step]?.[0].toLowerCase() === word.toLowerCase()),
  );
  const [first, last] = [words[at], words[at + wanted.length - 1]];
  if (!first || !last) return undefined;
  const [start, end] = [first.index, last.index + last[0].length];
  const value = collapseSpace((document.pages[page - 1] ?? '').slice(start, end));
  // The file and the page agree.
  return isTitle(value) ? { value, page, start, end, confidence: 0.97, evidence: [value] } : undefined;
}

function titleBySize(document: DocumentText): Finding | undefined {
  const page = document.titlePage;
  if (!page) return undefined;
  const text = document.pages[page.page - 1] ?? '';
  const blocks = blocksOf(page.lines)
    .map(({ size, start, end }) => ({ size, start, end, value: collapseSpace(text.slice(start, end)) }))
    .map((block) => withoutLabel(block))
    .filter(({ value }) => isTitle(value));
  const largest = Math.max(...blocks.map(({ size }) => size), 0);
  const best = blocks.find(({ size }) => size === largest);
  // A page set in one size has no largest print.
  if (!best || !page.lines.some(({ size }) => size < largest * 0.9)) return undefined;
  // The largest font gave 22 of 25 titles of PDFs rightly, 3 in part.
  return {
    value: best.value,
    page: page.page,
    start: best.start,
    end: best.end,
    confidence: 0.88,
    evidence: [best.value],
  };
}

/** Some journals print the kind of article right above the title, in the same size. */
function withoutLabel<T extends { start: number; value: string }>(block: T): T {
  const label =
    /^(?:(?:original|research|review|clinical|regular|full|short) ){1,2}(?:article|paper|study|report|communication|investigation|contribution|trial)s? (?=\p{Lu}|\d)/u.exec(
      block.value.replace(/^\p{L}+(?: \p{L}+)?/u, (words) => words.toLowerCase()),
    )?.[0];
  return label ? { ...block, start: block.start + label.length, value: block.value.slice(label.length) } : block;
}

/** Lines of one size that follow each other. */
function blocksOf(lines: readonly SizedLine[]): SizedLine[] {
  const blocks: SizedLine[] = [];
  for (const line of lines) {
    const last = blocks.at(-1);
    if (last && Math.abs(last.size - line.size) <= last.size * 0.03) last.end = line.end;
    else blocks.push({ ...line });
  }
  return blocks;
}

function titleOfText(document: DocumentText): Finding | undefined {
  const page = document.pages.findIndex((text) => text.trim() !== '');
  // A title stands at the beginning. What is further on is not looked at.
  const head = document.pages[page]?.slice(0, 5000) ?? '';
  let lines = 0;
  for (const match of head.matchAll(/[^\n]+/g)) {
    const [line] = match;
    if (line.trim() === '') continue;
    lines += 1;
    if (lines > 10) break;
    const prefix = /^\s{0,20}(?:(?:article |full )?title\s?[:.]|#{1,2}\s)\s{0,5}/i.exec(line)?.[0];
    const start = match.index + (prefix?.length ?? line.length - line.trimStart().length);
    const end = match.index + line.replace(/[\s#*]{1,20}$/, '').length;
    const value = collapseSpace(head.slice(start, end));
    if (end <= start || !isTitle(value) || value.includes(' ## ')) continue;
    if (prefix) return { value, page: page + 1, start, end, confidence: 0.95, evidence: [value] };
    // A bare first line is a title only if nothing says otherwise: it is no sentence and no list of names.
    if (lines === 1 && !/[.;,]$/.test(value) && value.length <= 300) {
      return { value, page: page + 1, start, end, confidence: 0.7, evidence: [value] };
    }
  }
  return undefined;
}
