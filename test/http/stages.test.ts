import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pauseStage, readStages } from '../../src/permits/stage-store.ts';
import { makeTask } from '../support/fixtures.ts';
import { json, openAppBench, refusal, sendJson } from './bench.ts';

const bench = await openAppBench(import.meta.url);
const { app, sql } = bench;
const patch = (stage: string, body: object) =>
  app.request(`/stages/${stage}`, {
    method: 'PATCH',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

test('the stages are shown with their limits, and who is inside', async () => {
  const { data } = await json(app.request('/stages'));
  assert.deepEqual(
    data.map(({ stage, permits, granted, waiting, pause }: Record<string, unknown>) => ({
      stage,
      permits,
      granted,
      waiting,
      pause,
    })),
    [
      { stage: 'parse', permits: 2, granted: 0, waiting: 0, pause: null },
      { stage: 'llm', permits: 5, granted: 0, waiting: 0, pause: null },
    ],
  );
});

test('a limit is changed for all processes without a restart; what is not named stays', async () => {
  const changed = await json(patch('llm', { permits: 7, tokensPerMinute: 100_000 }));
  assert.deepEqual([changed.permits, changed.tokensPerMinute, changed.requestsPerMinute], [7, 100_000, null]);
  const again = await json(patch('llm', { tokensPerMinute: null }));
  assert.deepEqual([again.permits, again.tokensPerMinute], [7, null]);
});

test('a stage that is paused until someone acts is said on the status of open tasks and on readiness, and is resumed', async () => {
  const { taskId } = await makeTask(bench, 1);
  await pauseStage(sql, 'llm', { code: 'model_unauthorized', message: 'The key was refused.' });
  const pause = { stage: 'llm', until: null, code: 'model_unauthorized', message: 'The key was refused.' };
  assert.deepEqual((await json(app.request(`/tasks/${taskId}/status`))).paused, [pause]);
  assert.deepEqual(await json(app.request('/readyz')), { status: 'ready', paused: [pause] });
  const resumed = await json(app.request('/stages/llm/resume', { method: 'POST' }));
  assert.equal(resumed.pause, null);
  assert.deepEqual(await json(app.request('/readyz')), { status: 'ready' });
});

test('what makes no sense is refused, and changes nothing', async () => {
  const before = await readStages(sql);
  for (const [body, path] of [
    [{ permits: -1 }, 'permits'],
    [{ permits: 1.5 }, 'permits'],
    [{ requestsPerMinute: 0 }, 'requestsPerMinute'],
    [{ stage: 'x' }, 'stage'],
  ] as const) {
    assert.deepEqual(await refusal(patch('llm', body)), { status: 400, code: 'invalid_request', paths: [path] });
  }
  assert.equal((await refusal(patch('gpu', { permits: 1 }))).code, 'stage_not_found');
  assert.equal((await refusal(sendJson(app, '/stages/llm/resume', { now: true }))).code, 'invalid_request');
  assert.deepEqual(await readStages(sql), before);
});
