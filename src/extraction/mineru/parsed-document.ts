import { permanent } from '../../errors.ts';
import { cleanText, type DocumentText } from '../document-text.ts';
import { tryJson } from './answers.ts';
import { type Heading, readContentList } from './content-list.ts';
import { transient } from './failures.ts';
import { markdownText } from './table-text.ts';

/** Counted up when the same answer of a server becomes another text, so that cached texts are not mixed. */
export const RENDERING = 'r1';

/** The text of a paper that a parser read, cleaned as `DocumentText` promises; it is one, and knows its headings. */
export type ParsedDocument = DocumentText & {
  format: 'markdown';
  headings: Heading[];
  /** False where the parser gave no pages: then the whole text stands on the first one. */
  paged: boolean;
};

/** What every dialect ends with. Either part may be missing; `version` is the server's own, if it tells. */
export type ParseOutput = { markdown: unknown; contentList: unknown; version?: string | undefined };

/**
 * Turns a server's answer into pages: by its blocks, which know their page, or else by its markdown as one page.
 *
 * @throws ExtractionError `mineru_no_text` (transient) where the answer holds neither, which is how MinerU reports some
 *   failures with status 200; `document_empty` (permanent) where it holds no letter
 */
export function toParsedDocument({ markdown, contentList }: ParseOutput): ParsedDocument {
  // In 2.x and 3.x the list is a text of JSON within the JSON.
  const blocks = typeof contentList === 'string' ? tryJson(contentList) : contentList;
  const paged = readContentList(blocks);
  if (paged !== undefined) return { ...paged, format: 'markdown', paged: true };
  if (typeof markdown !== 'string') {
    throw transient('mineru_no_text', 'MinerU reported success and gave no text');
  }
  const page = cleanText(markdownText(markdown)).replaceAll('\f', '\n').trim();
  if (page === '') throw permanent('document_empty', 'MinerU found no text in the document');
  return { pages: [page], headings: headingsIn(page), format: 'markdown', paged: false };
}

function headingsIn(page: string): Heading[] {
  return [...page.matchAll(/^(#{1,6}) +(\S[^\n]*)$/gm)].map((match) => {
    const marks = match[1] ?? '';
    const text = (match[2] ?? '').trimEnd();
    const start = match.index + match[0].length - (match[2] ?? '').length;
    return { page: 1, start, end: start + text.length, level: marks.length, text };
  });
}
