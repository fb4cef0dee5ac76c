import { randomBytes } from 'node:crypto';
import { validate as isUuid } from 'uuid';
import { storableText } from '../storable.ts';
import { RESULT_STATUSES, type ResultStatus } from '../tasks/task.ts';
import type { EventLevel, TaskEvent } from './task-event.ts';

/** The longest payload, in bytes of UTF-8. PostgreSQL refuses 8,000, and with it the transaction that notifies. */
export const MAX_PAYLOAD_BYTES = 6999;

/** What stands around the events: `{"i":"…","e":[` and `]}`. */
const FRAME_BYTES = 30;
const MAX_ID_BYTES = 100;
const MAX_CODE_BYTES = 200;
/** The last moment that a Date can hold. */
const MAX_DATE_MS = 8.64e15;
/** Leaves room for the ids and the rest of its event. */
const MAX_MESSAGE_BYTES = 6000;

/** A payload as its listeners have it. `id` is the sender's, and so the same for all of them. */
export type Payload = {
  id: string;
  /** By position; undefined: not one of the kinds known here. */
  events: (TaskEvent | undefined)[];
};

/** Events as NOTIFY payloads: few, each valid JSON and within the limit, in the given order. */
export function toPayloads(events: readonly TaskEvent[]): string[] {
  return packEvents(events.map(encodeEvent));
}

/**
 * One event as JSON, always short enough for a payload: what is too long is cut, by the bytes of its encoded form and never
 * inside a character. A position for each value, since a name would be sent a million times.
 */
export function encodeEvent(event: TaskEvent): string {
  const taskId = clip(event.taskId, MAX_ID_BYTES);
  switch (event.type) {
    case 'task':
      return JSON.stringify(['t', taskId]);
    case 'result': {
      const { resultId, status, attempt, code } = event;
      const why = code === undefined ? null : clip(code, MAX_CODE_BYTES);
      return JSON.stringify(['r', taskId, clip(resultId, MAX_ID_BYTES), status, attempt, why]);
    }
    case 'log': {
      const { level, message, resultId, attempt = null, at = Date.now() } = event;
      const about = resultId === undefined ? null : clip(resultId, MAX_ID_BYTES);
      return JSON.stringify(['l', taskId, level, clip(message, MAX_MESSAGE_BYTES), about, attempt, at]);
    }
  }
}

/** Puts encoded events into as few payloads as hold them in order. The random id makes each one of its kind. */
export function packEvents(encoded: readonly string[]): string[] {
  const payloads: string[] = [];
  let open: string[] = [];
  let bytes = FRAME_BYTES;
  const close = (): void => {
    if (open.length > 0) payloads.push(emptyPayload().replace('[]', () => `[${open.join(',')}]`));
    open = [];
    bytes = FRAME_BYTES;
  };
  for (const one of encoded) {
    const more = Buffer.byteLength(one) + 1;
    if (bytes + more > MAX_PAYLOAD_BYTES) close();
    open.push(one);
    bytes += more;
  }
  close();
  return payloads;
}

/** A payload without events: only a place in the order of all. */
export function emptyPayload(): string {
  return `{"i":"${randomBytes(9).toString('base64url')}","e":[]}`;
}

/** Reads a payload. Anybody may notify on the channel: what is none of ours is undefined, and never an error. */
export function readPayload(text: string): Payload | undefined {
  try {
    const { i: id, e: events } = JSON.parse(text);
    if (typeof id !== 'string' || !/^[\w-]{8,40}$/.test(id) || !Array.isArray(events)) return undefined;
    return { id, events: events.map(decodeEvent) };
  } catch {
    return undefined;
  }
}

function decodeEvent(value: unknown): TaskEvent | undefined {
  if (!Array.isArray(value) || !isUuid(value[1])) return undefined;
  const [kind, taskId] = value as [unknown, string];
  if (kind === 't') return { type: 'task', taskId };
  if (kind === 'r') {
    const [, , resultId, status, attempt, code] = value;
    if (!isUuid(resultId) || !isStatus(status) || !isCount(attempt)) return undefined;
    return { type: 'result', taskId, resultId, status, attempt, ...(typeof code === 'string' ? { code } : {}) };
  }
  if (kind === 'l') {
    const [, , level, message, resultId, attempt, at] = value;
    if (!isLevel(level) || typeof message !== 'string') return undefined;
    return {
      type: 'log',
      taskId,
      level,
      message,
      ...(isUuid(resultId) ? { resultId } : {}),
      ...(isCount(attempt) ? { attempt } : {}),
      ...(isCount(at) && at <= MAX_DATE_MS ? { at } : {}),
    };
  }
  return undefined;
}

const isStatus = (value: unknown): value is ResultStatus => RESULT_STATUSES.some((status) => status === value);
const isLevel = (value: unknown): value is EventLevel => value === 'info' || value === 'warn' || value === 'error';
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/**
 * The text without what PostgreSQL cannot hold, and at most `maxBytes` long inside a JSON string: quotes, backslashes and
 * control characters count as the escapes that they become.
 */
export function clip(text: string, maxBytes: number): string {
  // No character takes less than a byte, so that what lies behind can't be kept: 100 MB are not looked through.
  const head = storableText(text.slice(0, maxBytes + 1));
  if (text.length <= maxBytes && encodedBytes(head) <= maxBytes) return head;
  const mark = '…';
  let room = maxBytes - encodedBytes(mark);
  let end = 0;
  for (const character of head) {
    room -= encodedBytes(character);
    if (room < 0) break;
    end += character.length;
  }
  return head.slice(0, end) + mark;
}

function encodedBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text)) - 2;
}
