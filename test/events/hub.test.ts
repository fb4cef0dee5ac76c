import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { announceTasks } from '../../src/events/announce.ts';
import { type Hub, type HubOptions, startHub } from '../../src/events/hub.ts';
import { createPublisher } from '../../src/events/publisher.ts';
import type { WatchedTask } from '../../src/events/watched-task.ts';
import { openTestDatabase } from '../support/database.ts';
import { silent } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';

const { sql } = await openTestDatabase(import.meta.url);
const publisher = createPublisher({ sql, log: silent, intervalMs: 5 });

/** A task as the test says, and how often and when it was read. */
type Scene = { task: WatchedTask | undefined; error?: Error; readMs: number; readsAtMs: number[]; details: number };
const scenes = new Map<string, Scene>();
const hubs: Hub[] = [];

function newTask(change: Partial<Scene> = {}): { taskId: string; scene: Scene } {
  const taskId = uuidv7();
  const scene: Scene = { task: { ...open(0), details: {} }, readMs: 0, readsAtMs: [], details: 0, ...change };
  scenes.set(taskId, scene);
  return { taskId, scene };
}
const open = (done: number): WatchedTask => ({ progress: { done }, closedAtMs: undefined, details: undefined });
const closed = (closedAtMs: number): WatchedTask => ({ progress: { closed: true }, closedAtMs, details: undefined });

const read: HubOptions['read'] = async (taskId, wanted) => {
  const scene = scenes.get(taskId);
  if (scene === undefined) return undefined;
  scene.readsAtMs.push(performance.now());
  if (wanted.details) scene.details += 1;
  const { task, error } = scene;
  if (scene.readMs > 0) await new Promise((resolve) => setTimeout(resolve, scene.readMs));
  if (error) throw error;
  return task && { ...task, details: wanted.details ? { detailed: scene.details } : undefined };
};

async function newHub(limits: HubOptions['limits'] = {}): Promise<Hub> {
  const hub = await startHub({
    sql,
    read,
    log: silent,
    limits: { refreshMs: 20, lingerMs: 50, tendMs: 10, ...limits },
  });
  hubs.push(hub);
  return hub;
}

afterEach(() => {
  for (const hub of hubs.splice(0)) hub.close();
  scenes.clear();
});

type Client = {
  outcome: string;
  /** Everything that was taken. */
  text: () => string;
  events: () => { event: string; id: string | undefined; data: Record<string, unknown> }[];
  names: () => string;
  lastEventId: () => string | undefined;
  cut: () => boolean;
  ended: () => boolean;
  /** Takes what there is from now on. */
  readOn: () => void;
  takeOne: () => void;
  leave: () => Promise<void>;
};

async function watch(hub: Hub, taskId: string, lastEventId?: string, reading = true): Promise<Client> {
  let wasCut = false;
  let ended = false;
  let text = '';
  const watching = await hub.watch(taskId, { lastEventId, cut: () => (wasCut = true) });
  const pieces = watching.outcome === 'open' ? watching.pieces : undefined;
  const readOn = async (): Promise<void> => {
    for (let piece = await pieces?.next(); piece && !piece.done; piece = await pieces?.next()) {
      text += Buffer.from(piece.value).toString();
    }
    ended = true;
  };
  const events = () =>
    text.split('\n\n').flatMap((block) => {
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1];
      const data = field('data');
      return data === undefined ? [] : [{ event: field('event') ?? '', id: field('id'), data: JSON.parse(data) }];
    });
  if (reading) void readOn();
  return {
    outcome: watching.outcome,
    text: () => text,
    events,
    names: () =>
      events()
        .map(({ event }) => event)
        .join(' '),
    lastEventId: () =>
      text
        .match(/^id: (.*)$/gm)
        ?.at(-1)
        ?.slice(4),
    cut: () => wasCut,
    ended: () => ended,
    readOn: () => void readOn(),
    takeOne: () => void pieces?.next(),
    leave: async () => void (await pieces?.return()),
  };
}

const say = (taskId: string, message: string) => publisher.publish({ type: 'log', taskId, level: 'info', message });
const messages = (client: Client) =>
  client.events().flatMap(({ event, data }) => (event === 'log' ? [String(data.message)] : []));

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
