import assert from 'node:assert/strict';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { until } from '../support/waiting.ts';
import { openHubBench } from './hub-bench.ts';

const { sql, newTask, open, newHub, watch, say, messages } = await openHubBench(import.meta.url);

test('a client goes on where it was, in whichever process it lands: nothing twice and nothing left out', async () => {
  const [one, two] = [await newHub(), await newHub()];
  const { taskId } = newTask();
  const first = await watch(one, taskId);
  say(taskId, '1');
  say(taskId, '2');
  await until('two', () => messages(first).length === 2);
  await first.leave();
  say(taskId, '3');
  say(taskId, '4');
  const other = await watch(one, taskId);
  const resumed = await watch(two, taskId, first.lastEventId());
  say(taskId, '5');
  await until('all', () => messages(resumed).includes('5'));
  assert.equal(resumed.events()[0]?.event, 'snapshot');
  assert.equal(resumed.events()[0]?.data.resumed, true);
  assert.deepEqual(messages(resumed), ['3', '4', '5']);
  assert.equal(other.events()[0]?.data.resumed, false);
  for (const strange of ['', 'x', '-1', '../..', `${'a'.repeat(12)}.1`, '1'.repeat(10_000)]) {
    const stranger = await watch(one, taskId, strange);
    await until('its snapshot', () => stranger.events().length > 0);
    assert.equal(stranger.events()[0]?.data.resumed, false, strange);
  }
});

test('a client that comes back gets no snapshot that is older than what it has had', async () => {
  const hub = await newHub({ pollMs: 60_000 });
  const { taskId } = newTask();
  const first = await watch(hub, taskId);
  await until('its snapshot', () => first.names() === 'snapshot');
  say(taskId, '1');
  await until('the event', () => messages(first).length === 1);
  const [newcomer, resumed] = await Promise.all([watch(hub, taskId), watch(hub, taskId, first.lastEventId())]);
  await until('both snapshots', () => newcomer.events().length > 0 && resumed.events().length > 0);
  // The one has an earlier snapshot and what came behind it, which the other would not be sent again.
  assert.deepEqual(newcomer.events()[0]?.data, { done: 0, resumed: false, detailed: 1 });
  assert.deepEqual(messages(newcomer), ['1']);
  assert.deepEqual(resumed.events()[0]?.data, { done: 0, resumed: true, detailed: 2 });
  assert.deepEqual(messages(resumed), []);
});

test('a client that was told of nothing yet can go on, too: its snapshot names the place', async () => {
  const hub = await newHub();
  const { taskId } = newTask();
  const other = newTask().taskId;
  const client = await watch(hub, other);
  say(other, 'x');
  await until('any word', () => messages(client).length === 1);
  const first = await watch(hub, taskId);
  await until('its snapshot', () => first.names() === 'snapshot');
  await first.leave();
  say(taskId, 'missed');
  const resumed = await watch(hub, taskId, first.lastEventId());
  await until('what it missed', () => messages(resumed).length === 1);
  assert.equal(resumed.events()[0]?.data.resumed, true);
});

test('a place that is forgotten cannot be gone on from', async () => {
  const hub = await newHub({ keepMs: 1 });
  const { taskId } = newTask();
  const first = await watch(hub, taskId);
  say(taskId, '1');
  await until('the first', () => messages(first).length === 1);
  say(taskId, '2');
  await until('the second', () => messages(first).length === 2);
  const id = first.events().find(({ event }) => event === 'log')?.id;
  const resumed = await watch(hub, taskId, id);
  await until('its snapshot', () => resumed.events().length > 0);
  assert.equal(resumed.events()[0]?.data.resumed, false);
  assert.deepEqual(messages(resumed), []);
});

test('a connection that listens and is lost comes back, and everybody begins anew from a fresh read', async () => {
  const hub = await newHub({ pollMs: 60_000 });
  const { taskId, scene } = newTask();
  const client = await watch(hub, taskId);
  say(taskId, '1');
  await until('the first', () => messages(client).length === 1);
  const before = client.lastEventId();
  scene.task = open(1);
  await sql`
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and query ilike 'listen %' and pid <> pg_backend_pid()`;
  const snapshots = () => client.events().filter(({ event }) => event === 'snapshot');
  await until('another snapshot', () => snapshots().length === 2);
  assert.deepEqual(snapshots()[1]?.data, { done: 1, resumed: false, detailed: 2 });
  say(taskId, '2');
  await until('the second', () => messages(client).length === 2);
  const resumed = await watch(hub, taskId, before);
  await until('its snapshot', () => resumed.events().length > 0);
  assert.equal(resumed.events()[0]?.data.resumed, false, 'words may have been lost since');
});

test('a client that is too slow loses what came between, never more than its buffer holds, and is told so by a snapshot', async () => {
  const clientBytes = 20_000;
  const hub = await newHub({ clientBytes });
  const { taskId } = newTask();
  const slow = await watch(hub, taskId, undefined, false);
  const quick = await watch(hub, taskId);
  const line = 'x'.repeat(400);
  for (let i = 1; i <= 200; i++) {
    say(taskId, `${i} ${line}`);
    if (i % 20 === 0) await until('the quick one to have all', () => messages(quick).length === i);
  }
  slow.readOn();
  await until('a second snapshot', () => slow.events().filter(({ event }) => event === 'snapshot').length > 0);
  say(taskId, 'last');
  await until('the last', () => messages(slow).includes('last'));
  assert.ok(slow.text().length < 2 * clientBytes, `${slow.text().length} bytes`);
  const [first] = slow.events();
  assert.equal(first?.event, 'snapshot');
  assert.equal(first?.data.resumed, false);
  assert.ok(Number(first?.data.detailed) > 1, 'of a later read');
  assert.deepEqual(messages(quick).length, 201);
});

test('a client that has missed more than its buffer holds is not replayed a part of it', async () => {
  const hub = await newHub({ clientBytes: 20_000 });
  const { taskId } = newTask();
  const first = await watch(hub, taskId);
  say(taskId, 'first');
  await until('the first', () => messages(first).length === 1);
  const id = first.lastEventId();
  for (let i = 1; i <= 100; i++) {
    say(taskId, 'x'.repeat(400));
    if (i % 20 === 0) await until('all', () => messages(first).length === i + 1);
  }
  const resumed = await watch(hub, taskId, id);
  await until('its snapshot', () => resumed.events().length > 0);
  assert.equal(resumed.events()[0]?.data.resumed, false);
  say(taskId, 'new');
  await until('what is new', () => messages(resumed).length > 0);
  assert.deepEqual(messages(resumed), ['new']);
});

test('a client that is at its first piece for ever is cut off; one that is only quiet is not', async () => {
  const hub = await newHub({ stuckMs: 100, keepAliveMs: 20 });
  const { taskId } = newTask();
  const stuck = await watch(hub, taskId, undefined, false);
  stuck.takeOne();
  const quiet = await watch(hub, taskId);
  await until('the cut', () => stuck.cut());
  await until('signs of life', () => (quiet.text().match(/^: keep-alive$/gm)?.length ?? 0) > 5);
  assert.equal(quiet.cut(), false);
});

test('a sign of life carries the place, so that a client of a quiet task can go on after a busy hour of others', async () => {
  const hub = await newHub({ keepAliveMs: 20, keepMs: 200 });
  const { taskId } = newTask();
  const client = await watch(hub, taskId);
  const other = uuidv7();
  for (let i = 0; i < 5; i++) {
    say(other, 'x');
    const before = client.lastEventId();
    await until('a sign with another place', () => client.lastEventId() !== before);
  }
  const resumed = await watch(hub, taskId, client.lastEventId());
  await until('its snapshot', () => resumed.events().length > 0);
  assert.equal(resumed.events()[0]?.data.resumed, true);
});
