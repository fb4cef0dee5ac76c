import assert from 'node:assert/strict';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { announceTasks } from '../../src/events/announce.ts';
import { until } from '../support/waiting.ts';
import { openHubBench } from './hub-bench.ts';

const { sql, newTask, open, closed, newHub, watch, say } = await openHubBench(import.meta.url);

test('a thousand clients that come at once cost one read, and so does each change, and all see it', async () => {
  const hub = await newHub({ pollMs: 60_000 });
  const { taskId, scene } = newTask({ readMs: 20 });
  const clients = await Promise.all(Array.from({ length: 1000 }, () => watch(hub, taskId)));
  assert.equal(scene.readsAtMs.length, 1);
  scene.task = open(1);
  await announceTasks(sql, [taskId]);
  await until('all to see it', () => clients.every((client) => client.names() === 'snapshot progress'));
  assert.equal(scene.readsAtMs.length, 2);
  assert.equal(scene.details, 1, 'the details were read once');
  const late = await watch(hub, taskId);
  await until('its snapshot', () => late.names() === 'snapshot');
  assert.equal(scene.readsAtMs.length, 2, 'one who comes soon after needs no read');
  assert.deepEqual(late.events()[0]?.data, { done: 1, resumed: false, detailed: 1 });
});

test('however many events there are, a task is read four times a second, and for no more than a tenth of the time', async () => {
  const hub = await newHub({ refreshMs: 250 });
  const quick = newTask();
  const slow = newTask({ readMs: 60 });
  await Promise.all([watch(hub, quick.taskId), watch(hub, slow.taskId)]);
  await until('some reads', () => {
    say(quick.taskId, 'x');
    say(slow.taskId, 'x');
    return quick.scene.readsAtMs.length >= 6 && slow.scene.readsAtMs.length >= 3;
  });
  const least = ({ scene }: typeof quick) => {
    return Math.min(...scene.readsAtMs.slice(1).map((atMs, i) => atMs - (scene.readsAtMs[i] ?? 0)));
  };
  assert.ok(least(quick) > 245 && least(quick) < 350, `${least(quick)} ms`);
  assert.ok(least(slow) > 595, `${least(slow)} ms`);
});

test('a word that is lost costs no more than a poll', async () => {
  const hub = await newHub({ pollMs: 100 });
  const { taskId, scene } = newTask();
  const client = await watch(hub, taskId);
  await until('the snapshot', () => client.names() === 'snapshot');
  scene.task = open(7);
  await until('the progress', () => client.names() === 'snapshot progress');
  assert.deepEqual(client.events()[1]?.data, { done: 7 });
});

test('a task that nobody watches any more is not read, and one that does not exist is not remembered', async () => {
  const hub = await newHub({ pollMs: 10 });
  const [left, watched] = [newTask(), newTask()];
  const client = await watch(hub, left.taskId);
  await watch(hub, watched.taskId);
  assert.equal((await watch(hub, uuidv7())).outcome, 'unknown');
  await client.leave();
  const before = left.scene.readsAtMs.length;
  const others = watched.scene.readsAtMs.length;
  await until('polls of the other', () => watched.scene.readsAtMs.length > others + 5);
  assert.equal(left.scene.readsAtMs.length, before);
});

test('while the database is away streams stay open, and a newcomer hears of it; then all goes on', async () => {
  const hub = await newHub({ pollMs: 20 });
  const { taskId, scene } = newTask();
  const client = await watch(hub, taskId);
  await until('the snapshot', () => client.names() === 'snapshot');
  scene.error = Object.assign(new Error('away'), { code: 'ECONNREFUSED' });
  const reads = scene.readsAtMs.length;
  await until('a failed read', () => scene.readsAtMs.length > reads);
  await assert.rejects(watch(hub, taskId), /away/);
  assert.equal(client.ended(), false);
  delete scene.error;
  scene.task = open(1);
  await until('the progress', () => client.names() === 'snapshot progress');
  assert.equal((await watch(hub, taskId)).outcome, 'open');
});

test('a task that is deleted ends its streams', async () => {
  const hub = await newHub();
  const { taskId, scene } = newTask();
  const client = await watch(hub, taskId);
  scene.task = undefined;
  await announceTasks(sql, [taskId]);
  await until('the end', () => client.ended());
  assert.equal(client.names(), 'snapshot');
});

test('late words about the last results come before the end', async () => {
  const hub = await newHub({ lingerMs: 300 });
  const { taskId, scene } = newTask();
  const client = await watch(hub, taskId);
  scene.task = closed(5);
  await announceTasks(sql, [taskId]);
  await until('the closing', () => client.names() === 'snapshot progress');
  say(taskId, 'late');
  await until('the end', () => client.ended());
  assert.equal(client.names(), 'snapshot progress log end');
  assert.match(client.lastEventId() ?? '', /^[\w-]{12}\.\d+~5$/);
  assert.deepEqual(client.events().at(-1)?.data, { closed: true });
});

test('a task that is opened again in the last moment has not ended', async () => {
  const hub = await newHub({ lingerMs: 200 });
  const { taskId, scene } = newTask();
  const client = await watch(hub, taskId);
  scene.task = closed(5);
  await announceTasks(sql, [taskId]);
  await until('the closing', () => client.names() === 'snapshot progress');
  scene.task = open(1);
  await announceTasks(sql, [taskId]);
  await until('the opening', () => client.names() === 'snapshot progress progress');
  const againAtMs = performance.now();
  await until('the time of the end to pass', () => performance.now() - againAtMs > 300);
  assert.equal(client.ended(), false);
  scene.task = closed(6);
  await announceTasks(sql, [taskId]);
  await until('the end', () => client.ended());
  assert.match(client.lastEventId() ?? '', /~6$/);
});

test('who comes to a closed task gets a snapshot and the end; who has had the end gets nothing, unless it was opened since', async () => {
  const hub = await newHub();
  const { taskId, scene } = newTask({ task: closed(5) });
  const client = await watch(hub, taskId);
  await until('the end', () => client.ended());
  assert.equal(client.names(), 'snapshot end');
  const had = client.lastEventId();
  assert.equal((await watch(hub, taskId, had)).outcome, 'finished');
  assert.equal((await watch(hub, taskId, '~5')).outcome, 'finished');
  assert.equal((await watch(hub, taskId, '~4')).outcome, 'open');
  scene.task = open(1);
  const again = await watch(hub, taskId, had);
  assert.equal(again.outcome, 'open');
  scene.task = closed(6);
  const third = await watch(hub, taskId, had);
  await until('the second end', () => third.ended() && again.ended());
  assert.match(third.lastEventId() ?? '', /~6$/);
});

test('while somebody watches and nothing happens, the process says a word itself, and not otherwise', async () => {
  const words: string[] = [];
  await sql.listen('asl_events', (text) => words.push(text));
  const hub = await newHub({ markMs: 20, pollMs: 60_000 });
  await until('the word of the start', () => words.length > 0);
  const { taskId } = newTask();
  const client = await watch(hub, taskId);
  await until('words', () => words.length > 4);
  assert.ok(words.every((text) => JSON.parse(text).e.length === 0));
  await client.leave();
  const before = words.length;
  const leftAtMs = performance.now();
  await until('some time', () => performance.now() - leftAtMs > 200);
  assert.ok(words.length <= before + 1);
});

test('closing ends all streams at once, also one that takes nothing and one that still waits for its snapshot', async () => {
  const hub = await newHub();
  const { taskId } = newTask();
  const waiting = newTask({ readMs: 300 });
  const asking = await watch(hub, taskId);
  await until('the snapshot', () => asking.names() === 'snapshot');
  const stuck = await watch(hub, taskId, undefined, false);
  const pending = watch(hub, waiting.taskId);
  hub.close();
  assert.equal((await pending).outcome, 'closed');
  await until('the end', () => asking.ended());
  assert.equal(asking.cut(), false);
  assert.equal(stuck.cut(), true);
  assert.equal(asking.names(), 'snapshot');
  assert.equal((await watch(hub, taskId)).outcome, 'closed');
});
