import { type ErrorClass, toExtractionError } from '../errors.ts';
import type { TemplateField } from '../templates/template.ts';
import type { ExtractionInput, ExtractionOutput } from './engine.ts';
import { extractFields } from './extract-fields.ts';
import { readDocument } from './read-document.ts';

export type EmbeddedTask = {
  content: Uint8Array;
  mediaType: ExtractionInput['mediaType'];
  fields: TemplateField[];
};

/** Errors lose their class and their code on the way between threads, so they travel as values. */
export type EmbeddedResult =
  | { ok: true; output: ExtractionOutput }
  | { ok: false; errorClass: ErrorClass; code: string; message: string };

/** What a thread of the embedded engine does with one paper. */
export default async function extractInThread(task: EmbeddedTask): Promise<EmbeddedResult> {
  try {
    const text = await readDocument(task.content, task.mediaType);
    const data = extractFields(text, task.fields);
    const characters = text.pages.reduce((sum, page) => sum + page.length, 0);
    return { ok: true, output: { data, usage: { pages: text.pages.length, characters } } };
  } catch (error) {
    const { errorClass, code, message } = toExtractionError(error);
    return { ok: false, errorClass, code, message };
  }
}
