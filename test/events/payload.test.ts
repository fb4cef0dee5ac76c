import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { clip, emptyPayload, readPayload, toPayloads } from '../../src/events/payload.ts';
import type { TaskEvent } from '../../src/events/task-event.ts';
import { RESULT_STATUSES } from '../../src/tasks/task.ts';

const MAX_BYTES = 7000;
const taskId = uuidv7();
const resultId = uuidv7();

/** Any text, of any script, with what JSON escapes and what PostgreSQL cannot hold. */
const anyText = (maxLength: number) =>
  fc
    .array(
      fc.oneof(
        fc.string({ unit: 'binary' }),
        fc.string({ unit: 'grapheme' }),
        fc.constantFrom(
          '\0',
          '\ud83d',
          '\udc00',
          '"',
          '\\',
          '\n',
          '\u2028',
          '\u007f',
          '文献',
          '👩‍🔬',
          'é',
          '\u0001\u001f',
        ),
      ),
      { maxLength: 30 },
    )
    .chain((pieces) =>
      fc.nat({ max: 200 }).map((times) =>
        pieces
          .join('')
          .repeat(times + 1)
          .slice(0, maxLength),
      ),
    );

const anyEvent: fc.Arbitrary<TaskEvent> = fc.oneof(
  fc.record({ type: fc.constant('task' as const), taskId: fc.uuid() }, { noNullPrototype: true }),
  fc.record(
    {
      type: fc.constant('result' as const),
      taskId: fc.uuid(),
      resultId: fc.uuid(),
      status: fc.constantFrom(...RESULT_STATUSES),
      attempt: fc.nat(),
      code: anyText(500),
    },
    { requiredKeys: ['type', 'taskId', 'resultId', 'status', 'attempt'], noNullPrototype: true },
  ),
  fc.record(
    {
      type: fc.constant('log' as const),
      taskId: fc.uuid(),
      level: fc.constantFrom('info' as const, 'warn' as const, 'error' as const),
      message: anyText(20_000),
      resultId: fc.uuid(),
      attempt: fc.nat(),
      at: fc.nat(),
    },
    { requiredKeys: ['type', 'taskId', 'level', 'message', 'at'], noNullPrototype: true },
  ),
);

test('any events in any script become payloads that PostgreSQL takes, and come out as they went in but for cut texts', () => {
  fc.assert(
    fc.property(fc.array(anyEvent, { maxLength: 60 }), (events) => {
      const payloads = toPayloads(events);
      for (const payload of payloads) {
        assert.ok(Buffer.byteLength(payload) < MAX_BYTES, `${Buffer.byteLength(payload)} bytes`);
        assert.ok(payload.isWellFormed());
        assert.ok(!payload.includes('\0') && !payload.includes('\\u0000'));
      }
      const read = payloads.flatMap((payload) => readPayload(payload)?.events ?? []);
      assert.equal(read.length, events.length);
      events.forEach((event, i) => {
        assert.deepEqual(read[i], shortened(event, read[i]));
      });
    }),
    { numRuns: 300 },
  );
});

/** The event as it must come out: texts that did not fit are a beginning and an ellipsis. */
function shortened(event: TaskEvent, read: TaskEvent | undefined): TaskEvent {
  const said = (sent: string, got: string | undefined): string => {
    const whole = sent.toWellFormed().replaceAll('\0', '\uFFFD');
    if (got === undefined || got === whole) return whole;
    assert.ok(got.endsWith('…') && whole.startsWith(got.slice(0, -1)), 'a beginning of what was sent');
    // Not cut without need, and inside no character.
    assert.ok(Buffer.byteLength(JSON.stringify(got)) > 180);
    assert.ok(got.isWellFormed());
    return got;
  };
  if (event.type === 'log' && read?.type === 'log') return { ...event, message: said(event.message, read.message) };
  if (event.type === 'result' && event.code !== undefined && read?.type === 'result') {
    return { ...event, code: said(event.code, read.code) };
  }
  return event;
}

const scripts = { Latin: 'a', Chinese: '文', emoji: '🧪', quotes: '"', 'control characters': '\u0001', NUL: '\0' };
for (const [script, character] of Object.entries(scripts)) {
  test(`a message of 100,000 ${script} is cut to fit by the bytes that it takes in a payload`, () => {
    const event: TaskEvent = {
      type: 'log',
      taskId,
      resultId,
      attempt: 3,
      level: 'error',
      message: character.repeat(100_000),
    };
    const payloads = toPayloads([event]);
    assert.equal(payloads.length, 1);
    const bytes = Buffer.byteLength(payloads[0] ?? '');
    assert.ok(bytes > 6000 && bytes < MAX_BYTES, `${bytes} bytes`);
    const [read] = readPayload(payloads[0] ?? '')?.events ?? [];
    assert.ok(read?.type === 'log');
    const kept = character === '\0' ? '\uFFFD' : character;
    assert.equal(read.message, `${kept.repeat((read.message.length - 1) / kept.length)}…`);
  });
}

test('a text that fits is not touched, and one byte more cuts it', () => {
  assert.equal(clip('x'.repeat(100), 100), 'x'.repeat(100));
  assert.equal(clip('x'.repeat(101), 100), `${'x'.repeat(97)}…`);
  assert.equal(clip('文'.repeat(33), 100), '文'.repeat(33));
  assert.equal(clip('文'.repeat(34), 100), `${'文'.repeat(32)}…`);
  assert.equal(clip(`${'x'.repeat(95)}🧪`, 99), `${'x'.repeat(95)}🧪`);
  assert.equal(clip(`${'x'.repeat(96)}🧪`, 99), `${'x'.repeat(96)}…`);
});

test('five thousand results fit into less than a hundred payloads, in their order', () => {
  const events = Array.from({ length: 5000 }, (_, i): TaskEvent => {
    return { type: 'result', taskId, resultId: uuidv7(), status: 'completed', attempt: i };
  });
  const payloads = toPayloads(events);
  assert.ok(payloads.length < 100, String(payloads.length));
  assert.equal(new Set(payloads.map((payload) => readPayload(payload)?.id)).size, payloads.length);
  assert.deepEqual(
    payloads.flatMap((payload) => readPayload(payload)?.events),
    events,
  );
});

test('no events are no payload; a payload without events has an id', () => {
  assert.deepEqual(toPayloads([]), []);
  const read = readPayload(emptyPayload());
  assert.match(read?.id ?? '', /^[\w-]{12}$/);
  assert.deepEqual(read?.events, []);
});

test("a stranger's payload is ignored, and so is a stranger's event among ours", () => {
  const id = 'abcdefghijkl';
  for (const text of [
    '',
    'null',
    '7',
    '"x"',
    '[]',
    '{}',
    '{"i":7,"e":[]}',
    '{"i":"a b","e":[]}',
    `{"i":"${id}","e":{}}`,
  ]) {
    assert.equal(readPayload(text), undefined, text);
  }
  const events = [null, 7, {}, [], ['t'], ['t', 'x'], ['z', taskId], ['r', taskId, resultId, 'gone', 1, null]];
  const more = [
    ['r', taskId, resultId, 'error', -1],
    ['l', taskId, 'debug', 'x'],
    ['l', taskId, 'info', 7],
  ];
  const read = readPayload(JSON.stringify({ i: id, e: [...events, ...more, ['t', taskId]] }));
  assert.deepEqual(
    read?.events.filter((event) => event !== undefined),
    [{ type: 'task', taskId }],
  );
  assert.equal(read?.events.length, events.length + more.length + 1);
  fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => void readPayload(text)));
});
