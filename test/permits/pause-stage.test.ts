import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { ExtractionError } from '../../src/errors.ts';
import { fillStage, findStagesToFill } from '../../src/permits/grant-permits.ts';
import { type CallOutcome, toOutcome, toThrown } from '../../src/permits/outcome.ts';
import { pauseStage, readStages, resumeStage, setStage } from '../../src/permits/stage-store.ts';
import { openTestDatabase } from '../support/database.ts';
import { readQueue, readStage, release, request, resetStage } from './stage-queue.ts';

const { sql } = await openTestDatabase(import.meta.url);
beforeEach(async () => {
  await resetStage(sql, 'llm', 2);
  await resetStage(sql, 'parse', 2);
});

const failure: CallOutcome = { kind: 'failure', code: 'model_unavailable', message: 'x' };
const success: CallOutcome = { kind: 'success' };

/** Makes as much time pass as the pause still lasts. */
const lapsePause = () => sql`update asl_schema.stage set paused_until = clock_timestamp() where stage = 'llm'`;
const lapseWindow = () =>
  sql`update asl_schema.stage set window_started_at = now() - interval '1 minute' where stage = 'llm'`;

async function call(outcome: CallOutcome): Promise<void> {
  await release(sql, 'llm', await request(sql, 'llm'), outcome);
}

test('a wait that a server asked for holds for all, up to a tenth longer, and is not lifted by a success', async () => {
  const [first = '', second = '', next = ''] = [
    await request(sql, 'llm'),
    await request(sql, 'llm'),
    await request(sql, 'llm'),
  ];
  const rateLimited = new ExtractionError('defer', 'rate_limited', 'Slow down.', { retryAfterMs: 20_000 });
  assert.deepEqual(
    await release(sql, 'llm', first, toOutcome(rateLimited)),
    [],
    'nobody is let in by that very release',
  );
  assert.deepEqual(await release(sql, 'llm', second, success), []);
  const { pauseSeconds, code, message, failures } = await readStage(sql, 'llm');
  assert.ok(pauseSeconds > 19 && pauseSeconds <= 22, `${pauseSeconds} s`);
  assert.deepEqual({ code, message, failures }, { code: 'rate_limited', message: 'Slow down.', failures: 0 });
  assert.deepEqual(await findStagesToFill(sql, ['llm']), []);
  assert.equal((await readQueue(sql, 'parse')).inside.length, 0);
  const control = await request(sql, 'parse');
  assert.deepEqual((await readQueue(sql, 'parse')).inside, [control], 'the other stage goes on');

  await lapsePause();
  assert.deepEqual(await findStagesToFill(sql, ['llm']), ['llm']);
  assert.deepEqual(await fillStage(sql, 'llm'), [next]);
  assert.equal((await readStages(sql)).find(({ stage }) => stage === 'llm')?.pause, null);
});

test('a shorter wait does not cut a longer one short', async () => {
  const tickets = [await request(sql, 'llm'), await request(sql, 'llm')];
  await release(sql, 'llm', tickets[0] ?? '', { kind: 'pause', pauseMs: 60_000, code: 'long', message: 'x' });
  await release(sql, 'llm', tickets[1] ?? '', { kind: 'pause', pauseMs: 1_000, code: 'short', message: 'y' });
  const { pauseSeconds, code, message } = await readStage(sql, 'llm');
  assert.ok(pauseSeconds > 55, `${pauseSeconds} s`);
  assert.deepEqual({ code, message }, { code: 'long', message: 'x' });
});

test('a fault of the configuration lets nobody in until someone acts, and says why without a key', async () => {
  const fault = new ExtractionError('configuration', 'model_unauthorized', 'Bad key sk-abc123 for Bearer xyz.');
  const first = await request(sql, 'llm');
  await release(sql, 'llm', first, toOutcome(fault));
  const waiting = await request(sql, 'llm');
  assert.deepEqual(await fillStage(sql, 'llm'), []);
  const pause = { until: null, code: 'model_unauthorized', message: 'Bad key *** for Bearer ***' };
  assert.deepEqual((await readStages(sql)).find(({ stage }) => stage === 'llm')?.pause, pause);
  await resumeStage(sql, 'llm');
  assert.deepEqual(await readQueue(sql, 'llm'), { inside: [waiting], waiting: [] });
});

test('an operator pauses a stage for a while or for good, in place of any pause before', async () => {
  await pauseStage(sql, 'llm');
  await request(sql, 'llm');
  const until = new Date(Date.now() + 60_000);
  await pauseStage(sql, 'llm', { until, code: 'maintenance', message: 'Back soon.' });
  assert.deepEqual((await readQueue(sql, 'llm')).inside, []);
  const state = (await readStages(sql)).find(({ stage }) => stage === 'llm');
  assert.deepEqual(state?.pause, { until, code: 'maintenance', message: 'Back soon.' });
});

test('ten failures in a row open the circuit; one probe at a time, and a longer pause after each that fails', async () => {
  for (let i = 0; i < 9; i++) await call(failure);
  await call(success);
  for (let i = 0; i < 9; i++) await call(failure);
  assert.deepEqual(await readStage(sql, 'llm'), { failures: 9, code: null, message: null, pauseSeconds: null });

  const [late = '', tenth = '', a = '', b = ''] = [
    await request(sql, 'llm'),
    await request(sql, 'llm'),
    await request(sql, 'llm'),
    await request(sql, 'llm'),
  ];
  assert.deepEqual(await release(sql, 'llm', tenth, failure), []);
  const opened = await readStage(sql, 'llm');
  assert.equal(opened.code, 'circuit_open');
  assert.equal(opened.message, '10 calls or more have failed in a row, the last with model_unavailable.');
  assert.ok(opened.pauseSeconds > 28 && opened.pauseSeconds <= 30, `${opened.pauseSeconds} s`);
  await release(sql, 'llm', late, failure);
  assert.equal((await readStage(sql, 'llm')).failures, 10, 'one that was inside before is no probe');

  await lapsePause();
  assert.deepEqual(await fillStage(sql, 'llm'), [a], 'one probe');
  assert.equal((await readStages(sql)).find(({ stage }) => stage === 'llm')?.circuit, 'probing');
  assert.deepEqual(await fillStage(sql, 'llm'), []);
  await release(sql, 'llm', a, failure);
  const again = await readStage(sql, 'llm');
  assert.ok(again.pauseSeconds > 58 && again.pauseSeconds <= 60, `${again.pauseSeconds} s`);

  await lapsePause();
  const c = await request(sql, 'llm');
  assert.deepEqual((await readQueue(sql, 'llm')).inside, [b]);
  assert.deepEqual(await release(sql, 'llm', b, success), [c]);
  assert.deepEqual(await readStage(sql, 'llm'), { failures: 0, code: null, message: null, pauseSeconds: null });
  const d = await request(sql, 'llm');
  assert.deepEqual((await readQueue(sql, 'llm')).inside, [c, d], 'all permits are back');
});

test('the pause of an open circuit is never longer than ten minutes', async () => {
  await sql`update asl_schema.stage set failures = 1000000 where stage = 'llm'`;
  await call(failure);
  const { pauseSeconds } = await readStage(sql, 'llm');
  assert.ok(pauseSeconds > 598 && pauseSeconds <= 600, `${pauseSeconds} s`);
});

test('a minute lets no more requests in than its budget, and the next one does', async () => {
  await setStage(sql, 'llm', { permits: 5, requestsPerMinute: 3 });
  const tickets: string[] = [];
  for (let i = 0; i < 5; i++) tickets.push(await request(sql, 'llm'));
  assert.deepEqual((await readQueue(sql, 'llm')).inside, tickets.slice(0, 3));
  assert.deepEqual(await release(sql, 'llm', tickets[0] ?? '', success), []);
  assert.deepEqual(await findStagesToFill(sql, ['llm']), []);
  await lapseWindow();
  assert.deepEqual(await findStagesToFill(sql, ['llm']), ['llm']);
  assert.deepEqual(await fillStage(sql, 'llm'), tickets.slice(3));
});

test('a minute whose tokens are used up lets nobody in until it is over', async () => {
  await setStage(sql, 'llm', { tokensPerMinute: 1000 });
  const tickets: string[] = [];
  for (let i = 0; i < 4; i++) tickets.push(await request(sql, 'llm'));
  assert.deepEqual(await release(sql, 'llm', tickets[0] ?? '', success, 999), [tickets[2]]);
  assert.deepEqual(await release(sql, 'llm', tickets[1] ?? '', success, 1), []);
  await lapseWindow();
  assert.deepEqual(await fillStage(sql, 'llm'), [tickets[3]]);
});

test('what a call throws decides what becomes of its stage', () => {
  const kinds = (error: unknown): string => toOutcome(error).kind;
  assert.equal(kinds(new ExtractionError('permanent', 'refused', 'x', { retryAfterMs: 1 })), 'none');
  assert.equal(kinds(new ExtractionError('transient', 'unavailable', 'x')), 'failure');
  assert.equal(kinds(new Error('x')), 'failure');
  assert.equal(kinds(new ExtractionError('transient', 'busy', 'x', { retryAfterMs: 1000 })), 'pause');
  assert.equal(kinds(new ExtractionError('defer', 'busy', 'x')), 'pause');
  const long = toOutcome(new ExtractionError('defer', 'busy', 'é'.repeat(5000), { retryAfterMs: 1e12 }));
  assert.ok(long.kind === 'pause' && long.pauseMs !== null && long.pauseMs <= 3_960_000 && long.message.length <= 500);

  const busy = toThrown(new ExtractionError('transient', 'busy', 'x', { retryAfterMs: 1000 }));
  assert.ok(busy instanceof ExtractionError && busy.errorClass === 'defer' && busy.retryAfterMs === 1000);
});
