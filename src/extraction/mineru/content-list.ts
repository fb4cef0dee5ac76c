import { cleanText } from '../document-text.ts';
import { isObject, type JsonObject, listIn, textIn } from './answers.ts';
import { tableText } from './table-text.ts';

/** A heading in the text of a page: pages count from 1, offsets from 0 in UTF-16 units; level 1 is the highest. */
export type Heading = { page: number; start: number; end: number; level: number; text: string };

export type PagedText = { pages: string[]; headings: Heading[] };

/** No paper has more pages; a block that says so must not make us fill the memory with empty ones. */
const MAX_PAGES = 10_000;

/**
 * Puts MinerU's `content_list` together as markdown, page by page, in reading order.
 *
 * Blocks carry `page_idx` from 0 (4.x leaves a 0 out) and, for headings, `text_level`. Of the parts outside of the text the
 * footnotes and margin notes are kept; the running headers and footers only of the first page, where journals print DOI and
 * registration, since on every other page they would cut through a sentence. What a model says about a picture is not the
 * paper's words and is left out, its caption is kept.
 *
 * @returns undefined where it is no list of blocks, or no block holds text
 */
export function readContentList(contentList: unknown): PagedText | undefined {
  if (!Array.isArray(contentList)) return undefined;
  const pages: string[] = [];
  const headings: Heading[] = [];
  for (const block of contentList) {
    if (!isObject(block)) continue;
    const index = block.page_idx ?? 0;
    if (typeof index !== 'number' || !Number.isInteger(index) || index < 0 || index >= MAX_PAGES) return undefined;
    // Pages without a block are empty, and keep the others' numbers right.
    while (pages.length <= index) pages.push('');
    const text = cleanText(blockText(block, index)).replaceAll('\f', '\n').trim();
    if (text === '') continue;
    const before = pages[index] ? `${pages[index]}\n\n` : '';
    const level = levelOf(block);
    if (level > 0) {
      const marked = `${'#'.repeat(Math.min(level, 6))} ${text.replace(/\s+/g, ' ')}`;
      const start = before.length + marked.indexOf(' ') + 1;
      const end = before.length + marked.length;
      headings.push({ page: index + 1, start, end, level, text: marked.slice(marked.indexOf(' ') + 1) });
      pages[index] = before + marked;
    } else {
      pages[index] = before + text;
    }
  }
  return pages.some((page) => page !== '') ? { pages, headings } : undefined;
}

function levelOf({ type, text_level: level }: JsonObject): number {
  return (type === 'text' || type === 'title') && typeof level === 'number' && level >= 1 ? Math.floor(level) : 0;
}

function blockText(block: JsonObject, pageIndex: number): string {
  switch (block.type) {
    case 'page_number':
      return '';
    case 'header':
    case 'footer':
      return pageIndex === 0 ? (textIn(block, 'text') ?? '') : '';
    case 'table':
      return joined(
        lines(block, 'table_caption'),
        tableText(textIn(block, 'table_body') ?? ''),
        lines(block, 'table_footnote'),
      );
    case 'image':
      return joined(lines(block, 'image_caption'), lines(block, 'image_footnote'));
    case 'chart':
      return joined(lines(block, 'chart_caption'), lines(block, 'chart_footnote'));
    case 'code':
      return joined(lines(block, 'code_caption'), textIn(block, 'code_body') ?? '', lines(block, 'code_footnote'));
    case 'list':
      return joined(textIn(block, 'text') ?? '', listIn(block, 'list_items').filter(isText).map(listItem).join('\n'));
    default:
      return textIn(block, 'text') ?? '';
  }
}

/** Captions and footnotes are lists of texts; some versions give one text. */
function lines(block: JsonObject, key: string): string {
  return textIn(block, key) ?? listIn(block, key).filter(isText).join('\n');
}

/** Items that the paper numbers or marks itself keep their own mark. */
function listItem(item: string): string {
  return /^\s*(?:[-*•–·]|\(?\w{1,3}[.)]\s|\[\d+\])/.test(item) ? item.trim() : `- ${item.trim()}`;
}

function joined(...parts: string[]): string {
  return parts
    .map((part) => part.trim())
    .filter((part) => part !== '')
    .join('\n');
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}
