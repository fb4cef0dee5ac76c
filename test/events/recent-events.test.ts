import assert from 'node:assert/strict';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { createRecentEvents } from '../../src/events/recent-events.ts';
import type { TaskEvent } from '../../src/events/task-event.ts';

const [mine, other] = [uuidv7(), uuidv7()];
const log = (taskId: string, message: string): TaskEvent => ({ type: 'log', taskId, level: 'info', message });
const start = () => createRecentEvents({ keepMs: 60_000, maxBytes: 1000 });
const messages = (events: readonly { event: TaskEvent }[] | undefined) =>
  events?.map(({ event }) => (event.type === 'log' ? event.message : event.type));

test('an id names the place behind its event, and what came behind that is known by task', () => {
  const recent = start();
  recent.add(
    { id: 'a', events: [log(mine, '1'), log(other, '2'), { type: 'task', taskId: mine }, log(mine, '3')] },
    10,
    0,
  );
  recent.add({ id: 'b', events: [] }, 10, 0);
  recent.add({ id: 'c', events: [undefined, log(mine, '4')] }, 10, 0);
  const after = (id: string, taskId = mine) => messages(recent.after(recent.find(id)?.seq ?? -1, taskId));
  assert.deepEqual(after('a.0'), ['1', '3', '4']);
  assert.deepEqual(after('a.1'), ['3', '4']);
  assert.deepEqual(after('a.4'), ['4']);
  assert.deepEqual(after('b.0'), ['4']);
  assert.deepEqual(after('c.2'), []);
  assert.deepEqual(after('a.1', other), ['2']);
  assert.deepEqual(after('a.2', other), []);
  assert.deepEqual(after('a.0', uuidv7()), []);
  assert.deepEqual(recent.end().id, 'c.2');
  for (const unknown of ['a.5', 'b.1', 'd.0', 'a', 'a.x', '']) assert.equal(recent.find(unknown), undefined, unknown);
});

test('the same payload twice, from a sender that had no answer, counts once', () => {
  const recent = start();
  const payload = { id: 'a', events: [log(mine, '1')] };
  assert.equal(recent.add(payload, 10, 0).length, 1);
  assert.equal(recent.add(payload, 10, 0).length, 0);
  assert.deepEqual(messages(recent.after(0, mine)), ['1']);
});

test('what is older than a minute is forgotten, but for the last word, behind which nothing can be missing', () => {
  const recent = start();
  recent.add({ id: 'a', events: [log(mine, '1')] }, 10, 0);
  recent.add({ id: 'b', events: [log(mine, '2')] }, 10, 50_000);
  recent.prune(60_001);
  assert.equal(recent.find('a.0'), undefined);
  assert.equal(recent.after(0, mine), undefined);
  assert.deepEqual(messages(recent.after(recent.find('b.0')?.seq ?? -1, mine)), ['2']);
  recent.prune(1_000_000);
  assert.deepEqual(messages(recent.after(recent.find('b.1')?.seq ?? -1, mine)), []);
});

test('no more bytes are kept than allowed: the oldest go', () => {
  const recent = start();
  for (let i = 0; i < 50; i++) recent.add({ id: `p${i}`, events: [log(mine, String(i)), log(other, 'x')] }, 100, 0);
  assert.equal(recent.find('p39.0'), undefined);
  const oldest = recent.find('p40.0');
  assert.ok(oldest);
  assert.deepEqual(messages(recent.after(oldest.seq, mine)), [
    '40',
    '41',
    '42',
    '43',
    '44',
    '45',
    '46',
    '47',
    '48',
    '49',
  ]);
});

test('after a gap nobody can go on from before it', () => {
  const recent = start();
  recent.add({ id: 'a', events: [log(mine, '1')] }, 10, 0);
  const before = recent.end();
  recent.clear();
  assert.equal(recent.find('a.1'), undefined);
  assert.equal(recent.end().id, undefined);
  assert.deepEqual(recent.after(before.seq, mine), []);
  recent.add({ id: 'b', events: [log(mine, '2')] }, 10, 0);
  assert.equal(recent.after(before.seq - 1, mine), undefined);
  assert.deepEqual(messages(recent.after(before.seq, mine)), ['2']);
});
