import { badAnswer } from './failures.ts';
import type { HttpAnswer } from './http.ts';

export type JsonObject = { [key: string]: unknown };

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A member that is an object, or an empty one. */
export function objectIn(value: unknown, key: string): JsonObject {
  const member = isObject(value) ? value[key] : undefined;
  return isObject(member) ? member : {};
}

/** A member that is a list, or an empty one. */
export function listIn(value: unknown, key: string): unknown[] {
  const member = isObject(value) ? value[key] : undefined;
  return Array.isArray(member) ? member : [];
}

/** A member that is a text with something in it. */
export function textIn(value: unknown, key: string): string | undefined {
  const member = isObject(value) ? value[key] : undefined;
  return typeof member === 'string' && member !== '' ? member : undefined;
}

/** The body as a JSON object; undefined for a page of HTML, a body that was cut, or any other JSON. */
export function tryObject(answer: HttpAnswer): JsonObject | undefined {
  const value = tryJson(new TextDecoder().decode(answer.bytes));
  return isObject(value) ? value : undefined;
}

/** @throws ExtractionError `mineru_bad_answer` where the body is no JSON object */
export function expectObject(answer: HttpAnswer): JsonObject {
  const value = tryObject(answer);
  if (value === undefined) throw badAnswer('something other than a JSON object');
  return value;
}

export function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * An identifier that goes into a path: never a slash or a dot, so that an answer cannot lead to another route.
 *
 * @throws ExtractionError `mineru_bad_answer` where it is missing or of another shape
 */
export function expectId(value: unknown, key: string): string {
  const id = textIn(value, key);
  if (id === undefined || !/^[\w-]{1,200}$/.test(id)) throw badAnswer(`no usable ${key}`);
  return id;
}

/** What an answer that reports an error says about it: FastAPI's `detail`, the tasks' and the synchronous route's `error`. */
export function reasonIn(answer: HttpAnswer): string {
  const body = tryObject(answer);
  // A page of HTML from a proxy says nothing that the status does not.
  if (body === undefined) return '';
  const error = body.error;
  const candidates = [error, objectIn(body, 'error').message, body.detail, body.message, body.msg];
  const told = candidates.find((value) => typeof value === 'string' && value !== '');
  if (typeof told === 'string') return told;
  return body.detail === undefined ? '' : JSON.stringify(body.detail);
}
