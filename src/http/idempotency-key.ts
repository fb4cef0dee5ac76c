import { invalidRequest } from './problem.ts';

/**
 * The idempotency key of a request, from its body or its `Idempotency-Key` header: there as a quoted string, as the standard
 * draft has it (draft-ietf-httpapi-idempotency-key-header), or bare, as most clients send it.
 *
 * @throws Problem 400 when the header is not a key, or says another one than the body
 */
export function readIdempotencyKey(header: string | undefined, inBody: string | undefined): string | null {
  if (header === undefined) return inBody ?? null;
  const key = unquote(header.trim());
  // Two headers arrive as one, joined by a comma and a blank; and a quote that is never closed is a slip, not a key.
  const bare = key === header.trim();
  if (bare && (key.startsWith('"') || key.includes(', ')))
    throw fault('must be given once, as one key, quoted or bare');
  if (!/^[\x20-\x7e]{1,255}$/.test(key)) {
    throw fault('must have 1 to 255 printable ASCII characters, quoted or bare');
  }
  if (inBody !== undefined && inBody !== key) throw fault('is another key than idempotencyKey in the body');
  return key;
}

function unquote(header: string): string {
  const quoted = /^"((?:[^"\\]|\\["\\])*)"$/.exec(header)?.[1];
  return quoted === undefined ? header : quoted.replaceAll(/\\(["\\])/g, '$1');
}

function fault(message: string) {
  return invalidRequest([{ path: 'Idempotency-Key', message }]);
}
