import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../../src/db.ts';
import { ExtractionError } from '../../src/errors.ts';
import { createPermits, type Permits, type PermitsDeps } from '../../src/permits/permits.ts';
import { openTestDatabase } from '../support/database.ts';
import { silent } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';
import { readQueue, readStage, resetStage, TASK } from './stage-queue.ts';

const { sql, url } = await openTestDatabase(import.meta.url);
const opened: (() => Promise<unknown>)[] = [];

/** As a process of its own has them, with a pool of one connection. */
function openPermits(options: Partial<PermitsDeps> = {}): Permits {
  const pool = connect(url, { max: 1, applicationName: 'permits' });
  const permits = createPermits({ sql: pool, holder: 'test', log: silent, ...options });
  opened.push(async () => {
    await permits.close();
    await pool.end({ timeout: 1 });
  });
  return permits;
}

beforeEach(() => resetStage(sql, 'llm', 1));
afterEach(async () => {
  await Promise.all(opened.splice(0).map((close) => close()));
});

const never = new AbortController().signal;
const plain = { taskId: TASK, signal: never, whileWaiting: <W>(wait: Promise<W>) => wait };

/** A call that lasts until it is told how to end, and heeds its signal. */
function openCall() {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const begun = Promise.withResolvers<AbortSignal>();
  const call = (signal: AbortSignal): Promise<string> => {
    signal.addEventListener('abort', () => reject(signal.reason));
    begun.resolve(signal);
    return promise;
  };
  return { call, resolve, reject, begun: begun.promise };
}

test('a call is made with a permit, and its answer is handed on once the permit is back', async () => {
  await sql`update asl_schema.stage set failures = 3, tokens_per_minute = 1000 where stage = 'llm'`;
  const answer = await openPermits().withPermit('llm', plain, async (_, reportTokens) => {
    assert.equal((await readQueue(sql, 'llm')).inside.length, 1);
    reportTokens(40);
    reportTokens(2);
    return 'answer';
  });
  assert.equal(answer, 'answer');
  assert.deepEqual(await readQueue(sql, 'llm'), { inside: [], waiting: [] });
  const [row] = await sql`select failures, window_tokens::int as tokens from asl_schema.stage where stage = 'llm'`;
  assert.deepEqual({ ...row }, { failures: 0, tokens: 42 });
});

test('who waits holds no connection, stops the clock, and is let in within milliseconds by another process', async (t) => {
  const first = openCall();
  const holding = openPermits().withPermit('llm', plain, first.call);
  await first.begun;
  // The poll is too rare to be what lets it in.
  const other = openPermits({ holder: 'other', pollIntervalMs: 60_000 });
  const waits: Promise<unknown>[] = [];
  const whileWaiting = <W>(wait: Promise<W>): Promise<W> => {
    waits.push(wait);
    return wait;
  };
  const seconds = Array.from({ length: 20 }, openCall);
  const waiting = seconds.map(({ call }) => other.withPermit('llm', { ...plain, whileWaiting }, call));
  await until('all wait', async () => (await readQueue(sql, 'llm')).waiting.length === 20);
  assert.equal(waits.length, 20);
  // The last request is visible a moment before its connection is free; one that a waiter held would never be.
  await until('no connection is busy', async () => {
    const busy = await sql`
      select 1
      from pg_stat_activity
      where datname = current_database()
        and application_name = 'permits'
        and state <> 'idle'`;
    return busy.length === 0;
  });
  assert.equal((await readQueue(sql, 'llm')).waiting.length, 20);

  const releasedAt = performance.now();
  first.resolve('first');
  await Promise.race(seconds.map(({ begun }) => begun));
  const latencyMs = performance.now() - releasedAt;
  t.diagnostic(`release to next grant: ${latencyMs.toFixed(1)} ms`);
  assert.ok(latencyMs < 400, `${latencyMs} ms`);
  assert.equal(await holding, 'first');
  for (const { resolve } of seconds) resolve('done');
  assert.deepEqual(await Promise.all(waiting), Array(20).fill('done'));
});

test('an abort while waiting gives the place up, and the call is never made', async () => {
  const first = openCall();
  const permits = openPermits();
  const holding = permits.withPermit('llm', plain, first.call);
  await first.begun;
  const abort = new AbortController();
  const waiting = permits.withPermit('llm', { ...plain, signal: abort.signal }, () => assert.fail('called'));
  waiting.catch(() => {});
  await until('it waits', async () => (await readQueue(sql, 'llm')).waiting.length === 1);
  const reason = new Error('enough');
  abort.abort(reason);
  await assert.rejects(waiting, reason);
  const { inside, waiting: left } = await readQueue(sql, 'llm');
  assert.deepEqual([inside.length, left], [1, []]);
  // One that is aborted while its place is being taken leaves none behind either.
  const early = new AbortController();
  const asking = permits.withPermit('llm', { ...plain, signal: early.signal }, () => assert.fail('called'));
  early.abort(reason);
  await assert.rejects(asking, reason);
  first.resolve('done');
  await holding;
  assert.deepEqual(await readQueue(sql, 'llm'), { inside: [], waiting: [] });
});

test('a rate limit makes everybody wait, and comes back as a wait that spends no attempt', async () => {
  const permits = openPermits({ pollIntervalMs: 50 });
  const limited = permits.withPermit('llm', plain, async () => {
    throw new ExtractionError('transient', 'rate_limited', 'Slow down.', { retryAfterMs: 400 });
  });
  await assert.rejects(limited, { errorClass: 'defer', code: 'rate_limited', retryAfterMs: 400 });
  const pausedAt = performance.now();
  await openPermits({ pollIntervalMs: 50 }).withPermit('llm', plain, async () => {});
  const waitedMs = performance.now() - pausedAt;
  assert.ok(waitedMs > 300, `${waitedMs} ms`);
});

test('what fails for the stage counts against it; what was told to stop does not', async () => {
  const permits = openPermits();
  const unavailable = new ExtractionError('transient', 'unavailable', 'x');
  await assert.rejects(
    permits.withPermit('llm', plain, () => Promise.reject(unavailable)),
    unavailable,
  );
  assert.equal((await readStage(sql, 'llm')).failures, 1);
  const abort = new AbortController();
  const stopped = permits.withPermit('llm', { ...plain, signal: abort.signal }, async (signal) => {
    abort.abort(new Error('told to stop'));
    signal.throwIfAborted();
  });
  await assert.rejects(stopped, { message: 'told to stop' });
  assert.equal((await readStage(sql, 'llm')).failures, 1);
});

test('a permit is renewed as long as the call lasts', async () => {
  await openPermits({ ttlMs: 600, renewIntervalMs: 150 }).withPermit('llm', plain, async (signal) => {
    const [ticketId] = (await readQueue(sql, 'llm')).inside;
    await sleep(1200);
    signal.throwIfAborted();
    assert.deepEqual((await readQueue(sql, 'llm')).inside, [ticketId]);
  });
});

test('whose permit is gone is told to stop, and counts against nobody', async () => {
  const held = openCall();
  const holding = openPermits({ renewIntervalMs: 50 }).withPermit('llm', plain, held.call);
  await held.begun;
  await sql`delete from asl_schema.permit where stage = 'llm'`;
  await assert.rejects(holding, { errorClass: 'defer', code: 'permit_lost' });
  assert.equal((await readStage(sql, 'llm')).failures, 0);
});

test('whose permit can not be renewed is told to stop before anyone else is let in', async () => {
  const held = openCall();
  const holding = openPermits({ ttlMs: 1000, renewIntervalMs: 50 }).withPermit('llm', plain, held.call);
  const signal = await held.begun;
  await sql.begin(async (tx) => {
    await tx`select from asl_schema.permit for update`;
    const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve));
    await aborted;
    const [row] = await tx`select from asl_schema.permit where expires_at > clock_timestamp()`;
    assert.ok(row, 'the ticket is still good');
  });
  await assert.rejects(holding, { errorClass: 'defer', code: 'permit_lost' });
});

test('a place in the queue that was lost is taken again', async () => {
  const first = openCall();
  const permits = openPermits({ renewIntervalMs: 50, pollIntervalMs: 50 });
  const holding = permits.withPermit('llm', plain, first.call);
  await first.begun;
  const waiting = permits.withPermit('llm', plain, async () => 'in after all');
  await until('it waits', async () => (await readQueue(sql, 'llm')).waiting.length === 1);
  await sql`delete from asl_schema.permit where granted_at is null`;
  await until('it waits again', async () => (await readQueue(sql, 'llm')).waiting.length === 1);
  // By plain SQL, of which nobody is told.
  await sql`update asl_schema.stage set permits = 2 where stage = 'llm'`;
  assert.equal(await waiting, 'in after all');
  first.resolve('done');
  await holding;
});

test('a stop tells calls and waiters to end, and leaves no ticket behind', async () => {
  const permits = openPermits();
  const held = openCall();
  const holding = permits.withPermit('llm', plain, held.call);
  await held.begun;
  const waiting = permits.withPermit('llm', plain, () => assert.fail('called'));
  await until('it waits', async () => (await readQueue(sql, 'llm')).waiting.length === 1);
  const ends = Promise.allSettled([holding, waiting]);
  await permits.close();
  assert.deepEqual(await readQueue(sql, 'llm'), { inside: [], waiting: [] });
  for (const end of await ends) assert.ok(end.status === 'rejected' && end.reason.code === 'worker_stopped');
  await assert.rejects(
    permits.withPermit('llm', plain, () => assert.fail('called')),
    { code: 'worker_stopped' },
  );
});
