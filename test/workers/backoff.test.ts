import assert from 'node:assert/strict';
import { test } from 'node:test';
import { backoffMs } from '../../src/workers/backoff.ts';

test('the wait doubles with each failed attempt up to its maximum, and is at least half of that', (t) => {
  const options = { baseMs: 1000, maxMs: 10_000 };
  const at = (chance: number, failedAttempts: number): number => {
    const random = t.mock.method(Math, 'random', () => chance);
    const ms = backoffMs(failedAttempts, options);
    random.mock.restore();
    return ms;
  };
  assert.deepEqual(
    [1, 2, 3, 4, 5, 60].map((n) => at(0, n)),
    [500, 1000, 2000, 4000, 5000, 5000],
  );
  assert.deepEqual(
    [1, 2, 3, 4, 5, 60].map((n) => at(1, n)),
    [1000, 2000, 4000, 8000, 10_000, 10_000],
  );
});

test('attempts that failed together do not come back together', () => {
  const waits = Array.from({ length: 50 }, () => backoffMs(3, { baseMs: 1000, maxMs: 60_000 }));
  assert.ok(new Set(waits).size > 25);
});
