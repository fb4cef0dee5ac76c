import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ClientBuffer, createClientBuffer } from '../../src/events/client-buffer.ts';

const frame = (text: string) => Buffer.from(text);

function start(maxBytes = 100) {
  const seen = { cut: 0, gone: 0 };
  const buffer = createClientBuffer({ maxBytes, cut: () => seen.cut++, onGone: () => seen.gone++ });
  return { buffer, seen };
}

async function take(buffer: ClientBuffer): Promise<string | undefined> {
  const { value } = await buffer.next();
  return value === undefined ? undefined : Buffer.from(value).toString();
}

test('frames come out in order, many that wait as one piece, and the first at once for a client that asks', async () => {
  const { buffer } = start();
  buffer.add(frame('a'));
  buffer.add(frame('b'));
  assert.equal(await take(buffer), 'ab');
  const next = take(buffer);
  buffer.add(frame('c'));
  buffer.add(frame('d'));
  assert.equal(await next, 'c');
  assert.equal(await take(buffer), 'd');
});

test('large frames go out by about 64 kB', async () => {
  const { buffer } = start(300_000);
  for (let i = 0; i < 7; i++) buffer.add(Buffer.alloc(30_000, String(i)));
  const sizes: number[] = [];
  for (let i = 0; i < 4; i++) sizes.push((await buffer.next()).value?.length ?? 0);
  assert.deepEqual(sizes, [60_000, 60_000, 60_000, 30_000]);
});

test('no more waits than allowed, but one frame always, and of several all or none', async () => {
  const { buffer } = start(10);
  assert.ok(buffer.add(frame('longer than ten')));
  assert.ok(!buffer.add(frame('x')));
  buffer.clear();
  assert.ok(buffer.add(frame('0123456789')));
  assert.ok(!buffer.add(frame('x')));
  buffer.clear();
  assert.ok(!buffer.addAll([frame('a snapshot that is long'), frame('01234'), frame('567890')]));
  assert.ok(buffer.addAll([frame('a snapshot that is long'), frame('01234')]));
  assert.equal(await take(buffer), 'a snapshot that is long01234');
});

test('after its end it gives what is in it and nothing more, and the client has gone', async () => {
  const { buffer, seen } = start();
  buffer.add(frame('a'));
  buffer.end();
  assert.ok(buffer.add(frame('late')));
  assert.equal(await take(buffer), 'a');
  assert.equal(seen.gone, 0);
  assert.equal(await take(buffer), undefined);
  assert.deepEqual(seen, { cut: 0, gone: 1 });
});

test('closed, it lets a client that asks go in peace, and cuts off one that does not', async () => {
  const asking = start();
  const next = take(asking.buffer);
  asking.buffer.close();
  assert.equal(await next, undefined);
  assert.deepEqual(asking.seen, { cut: 0, gone: 1 });

  const busy = start();
  busy.buffer.add(frame('a'));
  busy.buffer.close();
  assert.deepEqual(busy.seen, { cut: 1, gone: 1 });
  assert.equal(await take(busy.buffer), undefined);
});

test('a client that has gone is told of once, and takes nothing any more', async () => {
  const { buffer, seen } = start();
  await buffer.return();
  await buffer.return();
  buffer.close();
  assert.ok(buffer.add(frame('a')));
  assert.equal(await take(buffer), undefined);
  assert.deepEqual(seen, { cut: 0, gone: 1 });
});

test('a sign of life is for a client that waits for one only, and time counts from the last piece', async () => {
  const { buffer } = start();
  buffer.keepAlive(frame('alive'));
  const next = take(buffer);
  buffer.keepAlive(frame('alive'));
  assert.equal(await next, 'alive');
  const nowMs = performance.now();
  assert.ok(buffer.silentMs(nowMs + 500) >= 500);
  assert.ok(buffer.busyMs(nowMs + 500) > 400);
  buffer.clear();
  buffer.add(frame('a'));
  assert.ok(buffer.busyMs(nowMs + 500) > 400, 'whatever is put meanwhile');
  const piece = take(buffer);
  assert.ok(buffer.busyMs(nowMs + 500) > 400, 'the next piece');
  assert.equal(await piece, 'a');
  void take(buffer);
  assert.equal(buffer.busyMs(nowMs + 500), 0);
});
