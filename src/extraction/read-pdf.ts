import { getDocumentProxy } from 'unpdf';
import { type ExtractionError, permanent } from '../errors.ts';
import type { DocumentText } from './document-text.ts';
import { HyphenJoiner, linesOfPage, type PdfLine, type PdfTextItem, pageFromLines } from './pdf-lines.ts';

/** Fewer characters a page than this means pictures of pages: no PDF library tells a scan from an empty page. */
const MIN_CHARACTERS_PER_PAGE = 50;

/**
 * Reads the text of a PDF in the order in which its publisher wrote it, which is the reading order in columns too.
 *
 * Pages keep their numbers: a page without text is an empty string.
 *
 * @throws ExtractionError `pdf_invalid`, `pdf_password` (an owner password alone is no obstacle) or `needs_ocr`
 */
export async function readPdf(bytes: Uint8Array): Promise<DocumentText> {
  if (isBlankFile(bytes)) throw permanent('document_empty', 'the document holds nothing but white space');
  // Node stores small buffers in a shared pool, and the reader refuses a Buffer.
  const pdf = await getDocumentProxy(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength), {
    verbosity: 0,
  }).catch((error: unknown) => {
    throw readError(error);
  });
  try {
    const pages: PdfLine[][] = [];
    for (let number = 1; number <= pdf.numPages; number += 1) {
      const page = await pdf.getPage(number);
      const content = await page.getTextContent();
      const items: PdfTextItem[] = content.items.filter((item) => 'str' in item);
      pages.push(linesOfPage(items));
      page.cleanup();
    }
    const { info } = await pdf.getMetadata();
    return documentFromLines(pages, metadataTitle(info));
  } catch (error) {
    throw readError(error);
  } finally {
    await pdf.loadingTask.destroy();
  }
}

function documentFromLines(pages: PdfLine[][], title: string | undefined): DocumentText {
  const joiner = new HyphenJoiner(pages);
  const read = pages.map((lines) => pageFromLines(lines, joiner));
  const characters = read.reduce((sum, page) => sum + page.text.replace(/\s+/g, '').length, 0);
  if (characters < MIN_CHARACTERS_PER_PAGE * read.length) {
    throw permanent('needs_ocr', `the PDF holds pictures of its ${read.length} pages, and no text`);
  }
  const first = read.findIndex((page) => page.text.trim() !== '');
  return {
    pages: read.map((page) => page.text),
    format: 'pdf',
    titlePage: { page: first + 1, lines: read[first]?.lines ?? [] },
    ...(title === undefined ? {} : { metadataTitle: title }),
  };
}

function metadataTitle(info: object): string | undefined {
  const title = 'Title' in info ? info.Title : undefined;
  return typeof title === 'string' && title.length <= 1000 ? title : undefined;
}

/**
 * What the reader throws is told by its name: its classes are not exported. Whatever it cannot read will not become
 * readable by another try, so everything is permanent.
 */
function readError(error: unknown): ExtractionError {
  const name = error instanceof Error ? error.name : '';
  if (name === 'ExtractionError') return error as ExtractionError;
  if (name === 'PasswordException') return permanent('pdf_password', 'the PDF opens only with a password', error);
  if (error instanceof RangeError) return permanent('document_too_complex', 'the PDF needs too much memory', error);
  return permanent('pdf_invalid', 'the file is not a PDF, or a damaged one', error);
}

function isBlankFile(bytes: Uint8Array): boolean {
  return bytes.length < 1_000_000 && bytes.every((byte) => byte === 0 || byte === 32 || (byte >= 9 && byte <= 13));
}
