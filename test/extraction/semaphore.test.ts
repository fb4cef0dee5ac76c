import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSemaphore } from '../../src/extraction/semaphore.ts';

const never = new AbortController().signal;

test('so many get in, the others wait in the order of arrival', async () => {
  const semaphore = createSemaphore(2);
  const leaveFirst = await semaphore.enter(never);
  await semaphore.enter(never);
  const entered: string[] = [];
  const third = semaphore.enter(never).then((leave) => {
    entered.push('third');
    return leave;
  });
  const fourth = semaphore.enter(never).then(() => entered.push('fourth'));
  await Promise.resolve();
  assert.deepEqual(entered, []);
  leaveFirst();
  // Leaving twice makes room once.
  leaveFirst();
  const leaveThird = await third;
  assert.deepEqual(entered, ['third']);
  leaveThird();
  await fourth;
  assert.deepEqual(entered, ['third', 'fourth']);
});

test('who gives up waiting leaves the queue to the others', async () => {
  const semaphore = createSemaphore(1);
  const leave = await semaphore.enter(never);
  const controller = new AbortController();
  const second = semaphore.enter(controller.signal);
  const third = semaphore.enter(never);
  controller.abort(new Error('no longer wanted'));
  await assert.rejects(second, /no longer wanted/);
  leave();
  await third;
  await assert.rejects(async () => semaphore.enter(AbortSignal.abort(new Error('too late'))), /too late/);
});
