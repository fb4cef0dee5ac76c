import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { startTimeLimit } from '../../src/workers/time-limit.ts';
import { deferred } from '../support/engines.ts';

/** Time that passes when the test says so. */
function mockTime(t: TestContext): (ms: number) => void {
  let now = 0;
  t.mock.timers.enable({ apis: ['setTimeout'] });
  t.mock.method(performance, 'now', () => now);
  return (ms) => {
    now += ms;
    t.mock.timers.tick(ms);
  };
}

test('the signal fires when the time is used up, and not before', (t) => {
  const pass = mockTime(t);
  const limit = startTimeLimit(1000);
  pass(999);
  assert.equal(limit.signal.aborted, false);
  pass(1);
  assert.equal(limit.signal.aborted, true);
});

test('time spent waiting is not counted, also when two waits overlap or one fails', async (t) => {
  const pass = mockTime(t);
  const limit = startTimeLimit(1000);
  pass(600);
  const [first, second] = [deferred<void>(), deferred<void>()];
  const waits = [limit.whileWaiting(first.promise), limit.whileWaiting(second.promise)] as const;
  pass(5000);
  first.resolve();
  await waits[0];
  pass(5000);
  second.reject(new Error('no permit'));
  await assert.rejects(waits[1], /no permit/);
  assert.equal(limit.signal.aborted, false);
  pass(399);
  assert.equal(limit.signal.aborted, false);
  pass(1);
  assert.equal(limit.signal.aborted, true);
});

test('a limit that was cleared never fires, not even when a wait ends after it', async (t) => {
  const pass = mockTime(t);
  const limit = startTimeLimit(1000);
  const wait = deferred<void>();
  const waiting = limit.whileWaiting(wait.promise);
  limit.clear();
  wait.resolve();
  await waiting;
  pass(10_000);
  assert.equal(limit.signal.aborted, false);
});
