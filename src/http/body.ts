import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from 'hono';
import { invalidRequest, Problem } from './problem.ts';

/** Past this many bytes of a refused body the connection is left to be closed, which the server does within a second. */
const DISCARD_BYTES = 64 * 1024 * 1024;

const JSON_LIMIT = { maxBytes: 16 * 1024 * 1024, code: 'body_too_large', what: 'a JSON body' };

export type ByteLimit = { maxBytes: number; code: string; what: string };

/**
 * The chunks of a request body, never more than the limit: a body that says so in its Content-Length is refused before its
 * first byte, another as soon as the count passes. When the reader leaves early, what still comes in is thrown away for a
 * while, because a client that is cut off in mid-sentence sees a reset connection instead of the answer.
 *
 * @throws Problem 413 over the limit; 400 when the body breaks off
 */
export async function* readChunks(request: Request, limit: ByteLimit): AsyncGenerator<Uint8Array, void, undefined> {
  const tooLarge = () => new Problem(413, limit.code, `${limit.what} may have at most ${limit.maxBytes} bytes`);
  if (Number(request.headers.get('content-length') ?? 0) > limit.maxBytes) throw tooLarge();
  const reader = request.body?.getReader();
  if (reader === undefined) return;
  let total = 0;
  let ended = false;
  try {
    for (;;) {
      const step = await reader.read().catch((cause: unknown) => {
        ended = true;
        // Also keeps a client's broken connection from being taken for the database's.
        throw new Problem(400, 'incomplete_body', 'the request body broke off', { cause });
      });
      if (step.done) {
        ended = true;
        return;
      }
      total += step.value.byteLength;
      if (total > limit.maxBytes) throw tooLarge();
      yield step.value;
    }
  } finally {
    if (!ended) void discard(reader);
  }
}

/** At a pace that leaves the client time to see its answer before this much has gone by. */
async function discard(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  let bytes = 0;
  try {
    while (bytes < DISCARD_BYTES) {
      const step = await reader.read();
      if (step.done) return;
      bytes += step.value.byteLength;
      await sleep(1, undefined, { ref: false });
    }
  } catch {
    // The client is gone, as it should be by now.
  }
}

/** The media type of a request body in lower case, without its parameters; empty when there is none. */
export function mediaTypeOf(request: Request): string {
  return (request.headers.get('content-type') ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';
}

/** @throws Problem 415 for a body that is compressed: bytes are taken as they come */
export function refuseEncodedBody(request: Request): void {
  const encoding = request.headers.get('content-encoding')?.trim().toLowerCase() ?? '';
  if (encoding === '' || encoding === 'identity') return;
  throw new Problem(415, 'unsupported_content_encoding', 'the request body must not be compressed', {
    headers: { 'Accept-Encoding': 'identity' },
  });
}

/**
 * The JSON object that a request carries.
 *
 * @throws Problem 415 for another media type, 413 over 16 MB, 400 for what is not a JSON object
 */
export async function readJson(c: Context): Promise<object> {
  refuseOtherThanJson(c.req.raw);
  const chunks: Uint8Array[] = [];
  for await (const chunk of readChunks(c.req.raw, JSON_LIMIT)) chunks.push(chunk);
  return parseJsonObject(chunks);
}

/** The same where a body may be left out: without one the object is empty, and nothing need be said about its type. */
export async function readOptionalJson(c: Context): Promise<object> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of readChunks(c.req.raw, JSON_LIMIT)) {
    if (chunk.byteLength === 0) continue;
    if (chunks.length === 0) refuseOtherThanJson(c.req.raw);
    chunks.push(chunk);
  }
  return chunks.length === 0 ? {} : parseJsonObject(chunks);
}

function refuseOtherThanJson(request: Request): void {
  refuseEncodedBody(request);
  if (/^application\/([\w.+-]+\+)?json$/.test(mediaTypeOf(request))) return;
  throw new Problem(415, 'unsupported_media_type', 'the request body must be JSON: Content-Type: application/json', {
    headers: { Accept: 'application/json' },
  });
}

function parseJsonObject(chunks: readonly Uint8Array[]): object {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks)));
  } catch (cause) {
    throw new Problem(400, 'malformed_json', 'the request body is not JSON in UTF-8', {
      errors: [{ path: '', message: 'is not JSON in UTF-8' }],
      cause,
    });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw invalidRequest([{ path: '', message: 'must be a JSON object' }]);
  }
  return value;
}
