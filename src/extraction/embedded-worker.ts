import { type ErrorClass, toExtractionError } from '../errors.ts';
import type { TemplateField } from '../templates/template.ts';
import type { DocumentText } from './document-text.ts';
import type { ExtractionInput, FieldValue } from './engine.ts';
import { extractFields } from './extract-fields.ts';
import { readDocument } from './read-document.ts';

type Paper = { content: Uint8Array; mediaType: ExtractionInput['mediaType'] };

export type EmbeddedTask =
  | ({ kind: 'read' } & Paper)
  | { kind: 'fill'; text: DocumentText; fields: TemplateField[] }
  | ({ kind: 'readAndFill'; fields: TemplateField[] } & Paper);

export type EmbeddedAnswer = {
  text?: DocumentText;
  data?: Record<string, FieldValue>;
  pages?: number;
  characters?: number;
};

/** Errors lose their class and their code on the way between threads, so they travel as values. */
export type EmbeddedResult =
  | { ok: true; answer: EmbeddedAnswer }
  | { ok: false; errorClass: ErrorClass; code: string; message: string };

/** What a thread of the pool does with one paper. */
export default async function workInThread(task: EmbeddedTask): Promise<EmbeddedResult> {
  try {
    return { ok: true, answer: await work(task) };
  } catch (error) {
    const { errorClass, code, message } = toExtractionError(error);
    return { ok: false, errorClass, code, message };
  }
}

async function work(task: EmbeddedTask): Promise<EmbeddedAnswer> {
  if (task.kind === 'fill') return { data: extractFields(task.text, task.fields) };
  const text = await readDocument(task.content, task.mediaType);
  if (task.kind === 'read') return { text };
  const characters = text.pages.reduce((sum, page) => sum + page.length, 0);
  return { data: extractFields(text, task.fields), pages: text.pages.length, characters };
}
