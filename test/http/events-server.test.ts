import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get, type IncomingMessage, type Server } from 'node:http';
import { type AddressInfo, type Socket, connect as tcp } from 'node:net';
import { after, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { connect } from '../../src/db.ts';
import { announceTasks } from '../../src/events/announce.ts';
import { type Hub, startHub } from '../../src/events/hub.ts';
import type { HubLimits } from '../../src/events/hub-limits.ts';
import { createPublisher } from '../../src/events/publisher.ts';
import { startServer } from '../../src/http/server.ts';
import { watchedTaskReader } from '../../src/http/watched-task.ts';
import { breakableProxy } from '../support/breakable-proxy.ts';
import { type EventStream, openStream } from '../support/event-stream.ts';
import { makeTask, silent } from '../support/fixtures.ts';
import { until, untilBlocked } from '../support/waiting.ts';
import { openAppBench } from './bench.ts';

const bench = await openAppBench(import.meta.url);
const { sql, url: databaseUrl, appWith } = bench;
const publisher = createPublisher({ sql, log: silent, intervalMs: 20 });

/** A process with the stream, as the service makes it; its statements are counted. */
async function serve(limits: Partial<HubLimits> = {}) {
  const counted = { statements: 0 };
  const onStatement = (): void => void counted.statements++;
  const pool = connect(databaseUrl, { max: 4, applicationName: 'events-server', onStatement });
  const hub: Hub = await startHub({ sql: pool, read: watchedTaskReader(pool), log: silent, limits });
  const server = await startServer(appWith({ hub, sql: pool }), { host: '127.0.0.1', port: 0 });
  const { port } = server.address() as AddressInfo;
  after(async () => {
    hub.close();
    server.close();
    server.closeAllConnections();
    await pool.end({ timeout: 1 });
  });
  const pathOf = (taskId: string): string => `http://127.0.0.1:${port}/tasks/${taskId}/events`;
  return { hub, server, port, counted, pathOf };
}

const say = (taskId: string, message: string) => publisher.publish({ type: 'log', taskId, level: 'info', message });
const messages = (stream: EventStream) => stream.of('log').map(({ data }) => data.message);
const lines = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => `line ${from + i}`);

/** A task goes through its life in steps that take as long as they take, whoever watches. */
async function live(taskId: string, steps: number): Promise<void> {
  for (let i = 1; i <= steps; i++) {
    await sql`
      update asl_schema.extraction_task set total_count = total_count + 1 where id = ${taskId}`;
    await announceTasks(sql, [taskId]);
    say(taskId, `line ${i}`);
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
  await sql`update asl_schema.extraction_task set status = 'completed', completed_at = now() where id = ${taskId}`;
  await announceTasks(sql, [taskId]);
}

test('a thousand clients of one task cost the database as much as one, and see the same', async (t) => {
  const cost: number[] = [];
  for (const count of [1, 1000]) {
    const { counted, pathOf } = await serve();
    const { taskId } = await makeTask(bench, 3);
    await openStream(pathOf((await makeTask(bench, 1)).taskId)).then((warm) => warm.untilEvent('snapshot'));
    counted.statements = 0;
    const streams = await Promise.all(Array.from({ length: count }, () => openStream(pathOf(taskId))));
    await until('all snapshots', () => streams.every((stream) => stream.events.length > 0), 60_000);
    const connected = counted.statements;
    await live(taskId, 10);
    await until('all ends', () => streams.every((stream) => stream.ended()), 60_000);
    for (const stream of streams) {
      assert.equal(stream.of('snapshot').length, 1);
      assert.deepEqual(messages(stream), lines(1, 10));
      assert.equal(stream.of('progress').at(-1)?.data.progress.total, 13);
      assert.equal(stream.of('end').length, 1);
    }
    cost.push(counted.statements);
    t.diagnostic(`${count} clients: ${connected} statements to connect, ${counted.statements} in all`);
  }
  const [one = 0, thousand = 0] = cost;
  // Not the same to the statement: the steps are not in step with the reads.
  assert.ok(thousand <= one * 1.25 + 2, `${one} statements for one client, ${thousand} for a thousand`);
});

test('a connection that listens and is cut comes back, and a fresh snapshot comes over the streams that are open', async () => {
  const { pathOf } = await serve({ pollMs: 60_000 });
  const { taskId } = await makeTask(bench, 1);
  const stream = await openStream(pathOf(taskId));
  await stream.untilEvent('snapshot');
  await sql`
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name = 'events-server' and query ilike 'listen %'`;
  const second = await stream.untilEvent('snapshot', 2);
  assert.equal(second.data.resumed, false);
  say(taskId, 'after');
  await stream.untilEvent('log');
  assert.equal(stream.ended(), false);
});

test('a client whose connection breaks again and again, and that lands in another process each time, has everything once', async () => {
  const urls = [await serve(), await serve()].map(({ port }) => `http://127.0.0.1:${port}`);
  const proxy = await breakableProxy(urls[0] ?? '');
  const { taskId } = await makeTask(bench, 1);
  const had: string[] = [];
  const resumed: boolean[] = [];
  let lastEventId = '';
  let said = 0;
  for (let round = 0; round < 12; round++) {
    const headers: Record<string, string> = lastEventId === '' ? {} : { 'Last-Event-ID': lastEventId };
    const stream = await openStream(`${proxy.url}/tasks/${taskId}/events`, headers);
    const first = await stream.untilEvent('snapshot');
    resumed.push(first.data.resumed);
    // Some are heard, and some get lost on the way or come while nobody is there.
    for (let i = 0; i < 20; i++) say(taskId, `line ${++said}`);
    const wanted = had.length + 1 + (round % 7);
    await until('some of them', () => had.length + stream.of('log').length >= wanted);
    proxy.cut(urls[(round + 1) % 2]);
    await until('the break', () => stream.ended());
    for (let i = 0; i < 5; i++) say(taskId, `line ${++said}`);
    had.push(...messages(stream));
    lastEventId = stream.lastEventId();
  }
  const last = await openStream(`${proxy.url}/tasks/${taskId}/events`, { 'Last-Event-ID': lastEventId });
  await until('all', () => had.length + messages(last).length >= said);
  assert.deepEqual([...had, ...messages(last)], lines(1, said));
  assert.deepEqual(resumed, [false, ...Array(11).fill(true)]);
});

/** A client that asks for a stream and takes the first byte of it. */
async function openStuck(port: number, taskId: string): Promise<Socket> {
  const stuck = tcp(port, '127.0.0.1');
  stuck.on('error', () => {});
  stuck.write(`GET /tasks/${taskId}/events HTTP/1.1\r\nHost: x\r\n\r\n`);
  await once(stuck, 'readable');
  stuck.read(1);
  return stuck;
}

/** One that takes everything and keeps nothing but the number of bytes. */
async function openCounter(url: string): Promise<{ bytes: number; close: () => void }> {
  const [answer] = (await once(get(url, { agent: false }), 'response')) as [IncomingMessage];
  const counter = { bytes: 0, close: () => void answer.destroy() };
  answer.on('data', (piece: Buffer) => (counter.bytes += piece.length));
  return counter;
}

const connections = (server: Server): Promise<number> =>
  new Promise((resolve) => server.getConnections((_, count) => resolve(count)));

/** Says more than the buffers of the network take, and waits until somebody has it. */
async function sayMegabytes(taskId: string, megabytes: number, reader: { bytes: number }): Promise<void> {
  const wanted = reader.bytes + megabytes * 1024 * 1024;
  const enough = (): boolean => {
    for (let i = 0; i < 20; i++) say(taskId, 'x'.repeat(5000));
    return reader.bytes > wanted;
  };
  await until(`${megabytes} MB to be read`, enough, 120_000);
}

test('a client that does not read costs a bounded piece of memory', async (t) => {
  const { port, pathOf, server } = await serve({ stuckMs: 600_000, keepBytes: 1024 * 1024 });
  const { taskId } = await makeTask(bench, 1);
  const reading = await openCounter(pathOf(taskId));
  const stuck = await openStuck(port, taskId);
  const before = usedMegabytes();
  await sayMegabytes(taskId, 30, reading);
  // What is on its way to the one that reads is given back in a moment; what is kept for the other would stay.
  let grown = Number.POSITIVE_INFINITY;
  await until('the memory to be given back', () => {
    grown = usedMegabytes() - before;
    return grown < 12;
  }).catch(() => {});
  t.diagnostic(`${grown.toFixed(1)} MB more after 30 MB of events`);
  assert.equal(await connections(server), 2, 'it is still there');
  assert.ok(grown < 12, `${grown} MB`);
  reading.close();
  stuck.destroy();
});

test('a client that does not read is cut off in the end; the others notice nothing', async () => {
  const { port, pathOf, server } = await serve({ stuckMs: 1000 });
  const { taskId } = await makeTask(bench, 1);
  const reading = await openCounter(pathOf(taskId));
  const stuck = await openStuck(port, taskId);
  await sayMegabytes(taskId, 15, reading);
  await until('the cut', async () => (await connections(server)) === 1, 30_000);
  const had = reading.bytes;
  say(taskId, 'one more');
  await until('the other to have one more', () => reading.bytes > had);
  reading.close();
  stuck.destroy();
});

/** What is in use, after the garbage is collected. */
function usedMegabytes(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return (heapUsed + arrayBuffers) / 1024 / 1024;
}

test('a client that leaves, also before it has an answer, leaves nothing behind: its task is not read any more', async () => {
  const { port, pathOf, counted, server } = await serve({ pollMs: 20, refreshMs: 20, tendMs: 10 });
  const { taskId } = await makeTask(bench, 1);
  const stream = await openStream(pathOf(taskId));
  await stream.untilEvent('snapshot');
  stream.close();
  const early = tcp(port, '127.0.0.1');
  await sql.begin(async (tx) => {
    await tx`lock table asl_schema.extraction_result in access exclusive mode`;
    early.write(`GET /tasks/${taskId}/events HTTP/1.1\r\nHost: x\r\n\r\n`);
    await untilBlocked(sql, 'left join asl_schema.extraction_result');
    early.destroy();
    await until('that it is gone', async () => (await connections(server)) === 0);
  });
  let quietSinceMs = performance.now();
  let last = -1;
  await until('no more statements', () => {
    if (counted.statements !== last) quietSinceMs = performance.now();
    last = counted.statements;
    return performance.now() - quietSinceMs > 500;
  });
});

test('a stopping process ends its streams at once, and its server does not wait', async () => {
  const { hub, server, pathOf } = await serve();
  const { taskId } = await makeTask(bench, 1);
  const streams = await Promise.all(Array.from({ length: 50 }, () => openStream(pathOf(taskId))));
  await Promise.all(streams.map((stream) => stream.untilEvent('snapshot')));
  const startedAtMs = performance.now();
  hub.close();
  await new Promise((resolve) => server.close(resolve));
  assert.ok(performance.now() - startedAtMs < 1000);
  await until('the ends', () => streams.every((stream) => stream.ended()));
  assert.ok(streams.every((stream) => stream.answer.complete && stream.of('end').length === 0));
});
