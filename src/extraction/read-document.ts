import { permanent } from '../errors.ts';
import type { DocumentText } from './document-text.ts';
import type { ExtractionInput } from './engine.ts';
import { readPdf } from './read-pdf.ts';
import { readText } from './read-text.ts';

/**
 * Turns the bytes of a paper into pages of text. CPU-heavy for PDFs: call it in a worker thread.
 *
 * The buffer may be taken over by the PDF reader; pass a copy if it is needed afterwards.
 *
 * @throws ExtractionError, always permanent: `document_empty`, `pdf_invalid`, `pdf_password`, `needs_ocr`,
 *   `text_undecodable`
 */
export async function readDocument(
  content: Uint8Array,
  mediaType: ExtractionInput['mediaType'],
): Promise<DocumentText> {
  if (content.byteLength === 0) throw permanent('document_empty', 'the document has no bytes');
  if (mediaType === 'application/pdf') return await readPdf(content);
  return readText(content, mediaType === 'text/markdown' ? 'markdown' : 'text');
}
