import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLogger } from '../src/log.ts';
import { startLoop } from '../src/loop.ts';
import { coalesce } from '../src/wake.ts';
import { deferred } from './support/engines.ts';
import { until } from './support/waiting.ts';

const log = createLogger({ level: 'error', write: () => {} });
const never = 3_600_000;

test('a loop runs its step at once, then waits until it is woken', async () => {
  let rounds = 0;
  const loop = startLoop({
    name: 'test',
    intervalMs: never,
    log,
    step: async () => {
      rounds += 1;
      return undefined;
    },
  });
  await until('the first round', () => rounds === 1);
  loop.wake();
  await until('the second round', () => rounds === 2);
  await loop.stop();
  assert.equal(rounds, 2);
});

test('a wake during a step is not lost: one more round follows, however many wakes there were', async () => {
  const gates = [deferred<undefined>(), deferred<undefined>()];
  let rounds = 0;
  const loop = startLoop({ name: 'test', intervalMs: never, log, step: () => (gates[rounds++] ?? deferred()).promise });
  for (let i = 0; i < 5; i++) loop.wake();
  gates[0]?.resolve(undefined);
  await until('the second round', () => rounds === 2);
  gates[1]?.resolve(undefined);
  await loop.stop();
  assert.equal(rounds, 2);
});

test('a step says when the next is wanted', async () => {
  let rounds = 0;
  const loop = startLoop({ name: 'test', intervalMs: never, log, step: async () => (++rounds < 3 ? 1 : undefined) });
  await until('three rounds', () => rounds === 3);
  await loop.stop();
});

test('a step that fails is logged, and the loop goes on', async () => {
  const lines: string[] = [];
  const logger = createLogger({ level: 'error', write: (line) => lines.push(line) });
  let rounds = 0;
  const step = async (): Promise<undefined> => {
    rounds += 1;
    if (rounds === 1) throw new Error('out of luck');
  };
  const loop = startLoop({ name: 'sweeping', intervalMs: 1, log: logger, step });
  await until('a round after the failure', () => rounds >= 2);
  await loop.stop();
  const { message, error } = JSON.parse(lines[0] ?? '{}');
  assert.deepEqual({ message, error }, { message: 'sweeping failed', error: 'out of luck' });
});

test('a stop waits for the step that runs, and no other follows', async () => {
  const gate = deferred<undefined>();
  let rounds = 0;
  const step = () => {
    rounds += 1;
    return gate.promise;
  };
  const loop = startLoop({ name: 'test', intervalMs: 1, log, step });
  let stopped = false;
  const stopping = loop.stop().then(() => {
    stopped = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(stopped, false);
  gate.resolve(undefined);
  await stopping;
  assert.equal(rounds, 1);
});

test('a burst of words becomes one at once and one after it', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let words = 0;
  const say = coalesce(200, () => {
    words += 1;
  });
  for (let i = 0; i < 100; i++) say();
  assert.equal(words, 1);
  t.mock.timers.tick(200);
  assert.equal(words, 2);
  t.mock.timers.tick(1000);
  assert.equal(words, 2);
  say();
  assert.equal(words, 3);
});
