import { permanent } from '../errors.ts';
import { cleanText, type DocumentText } from './document-text.ts';

/**
 * Reads plain text or markdown: one page, or as many as form feeds divide it into.
 *
 * A byte-order mark decides between UTF-8 and UTF-16. Without one the text is UTF-8 if it is valid UTF-8, and
 * Windows-1252 (which every Latin-1 text is too) if it is not.
 *
 * @throws ExtractionError `document_empty` where there is nothing but white space, `text_undecodable` where the bytes are
 *   no text at all
 */
export function readText(bytes: Uint8Array, format: 'text' | 'markdown'): DocumentText {
  const decoded = decodeText(bytes);
  if (looksBinary(decoded)) throw permanent('text_undecodable', 'the file is not a text');
  // A form feed at the very end closes the last page; it does not open another.
  const pages = cleanText(decoded)
    .replace(/\f\s{0,100}$/, '')
    .split('\f');
  if (pages.length > MAX_PAGES) {
    throw permanent('document_too_complex', `the document has more than ${MAX_PAGES} pages`);
  }
  if (pages.every((page) => page.trim() === '')) throw permanent('document_empty', 'the document holds no text');
  return { pages, format };
}

/** Beyond any book; a file of nothing but form feeds would have millions. */
const MAX_PAGES = 20_000;

function decodeText(bytes: Uint8Array): string {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return new TextDecoder('utf-16le').decode(bytes);
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return new TextDecoder('utf-16be').decode(bytes);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder('windows-1252').decode(bytes);
  }
}

/** More than a few, and more than a tenth, of control characters at the beginning: an image or an archive, not a text with a few slips. */
function looksBinary(text: string): boolean {
  const head = text.slice(0, 4096);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is counted here
  const control = head.match(/[\u0000-\u0008\u000e-\u001a\u001c-\u001f\ufffd]/g)?.length ?? 0;
  return control > Math.max(8, head.length / 10);
}
