import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSlots } from '../../src/workers/slots.ts';

const never = new AbortController().signal;

/** Makes the slots believe that extractions take so long. */
async function work(slots: ReturnType<typeof createSlots>, ms: number, times = 60): Promise<void> {
  const real = performance.now;
  try {
    for (let i = 0; i < times; i++) {
      performance.now = () => 0;
      const leave = await slots.enter(never);
      performance.now = () => ms;
      leave();
    }
  } finally {
    performance.now = real;
  }
}

test('nothing is claimed ahead before an extraction has ended, and never more than so much work', async () => {
  const slots = createSlots(32);
  assert.equal(slots.ahead(), 0);
  const ahead: Record<number, number> = {};
  for (const ms of [0, 25, 50, 100, 1000, 10_000]) {
    await work(slots, ms, 200);
    ahead[ms] = slots.ahead();
  }
  assert.deepEqual(ahead, { 0: 93, 25: 62, 50: 31, 100: 15, 1000: 1, 10000: 0 });
});

test('a process with one place never holds a second result', async () => {
  const slots = createSlots(1);
  await work(slots, 0);
  assert.equal(slots.ahead(), 0);
});

test('one that has waited in vain ends the claiming ahead', async () => {
  const slots = createSlots(10);
  await work(slots, 1);
  assert.equal(slots.ahead(), 27);
  slots.noteWait(2000);
  assert.equal(slots.ahead(), 0);
});

test('who waits for a place can give up, and is not counted any more', async () => {
  const slots = createSlots(1);
  const leave = await slots.enter(never);
  const impatient = new AbortController();
  const waiting = slots.enter(impatient.signal);
  assert.equal(slots.waiting(), 1);
  impatient.abort(new Error('no more'));
  await assert.rejects(waiting, /no more/);
  assert.equal(slots.waiting(), 0);
  leave();
  (await slots.enter(never))();
});
