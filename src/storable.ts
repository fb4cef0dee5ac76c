import type { JSONValue } from 'postgres';

/** Longest error message that is kept, in bytes of UTF-8. */
const MAX_MESSAGE_BYTES = 2000;

/**
 * Text that PostgreSQL takes: NUL and lone surrogates, which neither `text` nor `jsonb` can hold, become U+FFFD, the
 * character that stands for one that could not be kept.
 */
export function storableText(text: string): string {
  return text.toWellFormed().replaceAll('\u0000', '\uFFFD');
}

/** An error message as it is stored: bounded by bytes, not characters, and never cut inside one. */
export function storableMessage(message: string): string {
  const text = storableText(message);
  if (Buffer.byteLength(text) <= MAX_MESSAGE_BYTES) return text;
  // A cut inside a character shows as U+FFFD at the end.
  const cut = Buffer.from(text)
    .subarray(0, MAX_MESSAGE_BYTES - 3)
    .toString('utf8')
    .replace(/\uFFFD+$/, '');
  return `${cut}…`;
}

/** The same for every string inside a JSON value, keys included. Not finite numbers become null, as JSON has it. */
export function storableJson(value: unknown): JSONValue {
  if (typeof value === 'string') return storableText(value);
  if (typeof value === 'number') return Number.isFinite(value) ? value : null;
  if (typeof value === 'boolean' || value === null) return value;
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return value.map(storableJson);
  if (typeof value === 'object') {
    const entries = Object.entries(value).filter(([, entry]) => entry !== undefined && typeof entry !== 'function');
    return Object.fromEntries(entries.map(([key, entry]) => [storableText(key), storableJson(entry)]));
  }
  return null;
}
