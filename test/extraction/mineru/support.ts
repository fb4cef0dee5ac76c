import assert from 'node:assert/strict';
import { type ErrorClass, ExtractionError } from '../../../src/errors.ts';
import type { ParsedDocument } from '../../../src/extraction/mineru/parsed-document.ts';
import type { DocumentParser } from '../../../src/extraction/mineru/parser.ts';

export const PDF = new TextEncoder().encode('%PDF-1.7 a paper of the tests');

export function parse(parser: DocumentParser, signal = new AbortController().signal): Promise<ParsedDocument> {
  return parser.parse({ content: PDF, filename: 'Smith 2019 cuda password.pdf', signal });
}

export function identify(parser: DocumentParser): Promise<string> {
  return parser.identify(new AbortController().signal).then(({ version }) => version);
}

/** The error that a promise must end with: its class and code, and the whole of it for more. */
export async function failure(
  promise: Promise<unknown>,
  expected: `${ErrorClass} ${string}`,
): Promise<ExtractionError> {
  const error = await promise.then(
    () => assert.fail(`there is no error, where "${expected}" is due`),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof ExtractionError, String(error));
  assert.equal(`${error.errorClass} ${error.code}`, expected, error.message);
  assert.ok(error.message.length <= 300);
  assert.doesNotMatch(error.message, /https?:\/\/\w|[Ss]ignature=|cloud-key|Smith/);
  return error;
}

/** How often each route was asked for; polls are not counted, since their number depends on the clock. */
export function count(routes: string[], route: string): number {
  return routes.filter((other) => other === route).length;
}
