import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { ExtractionError, permanent } from '../../src/errors.ts';
import type { ExtractionEngine } from '../../src/extraction/engine.ts';
import { EXTRACT_QUEUE } from '../../src/queue.ts';
import { listResults } from '../../src/tasks/read-tasks.ts';
import { taskProgress } from '../../src/tasks/task-progress.ts';
import { type Consumer, type ConsumerDeps, startConsumer } from '../../src/workers/consumer.ts';
import { answer, deferred, hang, scriptedEngine } from '../support/engines.ts';
import {
  jobStates,
  lapseHeartbeat,
  limits,
  makeTask,
  openTestBench,
  readResult,
  silent,
  takeResult,
  withMethod,
} from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss } = bench;

const consumers: Consumer[] = [];
function start(engine: ExtractionEngine, more: Partial<ConsumerDeps> = {}): Consumer {
  const consumer = startConsumer({
    sql,
    boss,
    engine,
    limits,
    slots: 10,
    // Far away: what a test waits for comes from a free slot or a wake, or from a poll it asked for.
    pollIntervalMs: 60_000,
    extractionTimeoutMs: 60_000,
    retryDelayMs: 0,
    retryDelayMaxMs: 0,
    worker: 'test',
    log: silent,
    onSettled: () => {},
    ...more,
  });
  consumers.push(consumer);
  return consumer;
}

afterEach(async () => {
  await Promise.all(consumers.splice(0).map((consumer) => consumer.stop(0)));
  await sql`delete from asl_schema.extraction_task`;
  await boss.deleteAllJobs(EXTRACT_QUEUE);
});

const progressOf = async (taskId: string) => {
  const state = await taskProgress(sql, taskId);
  assert.ok(state);
  return state.progress;
};
const terminal = (taskId: string, count: number) =>
  until(`${count} terminal results`, async () => {
    const { success, failed, cancelled } = await progressOf(taskId);
    return success + failed + cancelled >= count;
  });

test('every result of a task is extracted once, never more than the slots at a time', async () => {
  const { taskId } = await makeTask(bench, 60);
  const full = deferred<void>();
  const engine = scriptedEngine(async () => {
    // The first ones wait for each other, so that all slots are seen busy at once.
    if (engine.running.now >= 7) full.resolve();
    await full.promise;
    return answer;
  });
  start(engine, { slots: 7 });
  await terminal(taskId, 60);
  assert.equal((await progressOf(taskId)).success, 60);
  assert.equal(engine.started.length, 60);
  assert.equal(new Set(engine.started).size, 60);
  assert.equal(engine.running.most, 7);
});

test('a slow paper delays no other: its neighbours go on while it holds its slot', async () => {
  const { taskId } = await makeTask(bench, 30);
  const slow = deferred<typeof answer>();
  const engine = scriptedEngine((filename) => (filename === 'paper-0.txt' ? slow.promise : Promise.resolve(answer)));
  start(engine, { slots: 2 });
  await terminal(taskId, 29);
  const { extracting, success } = await progressOf(taskId);
  assert.deepEqual({ extracting, success }, { extracting: 1, success: 29 });
  slow.resolve(answer);
  await terminal(taskId, 30);
});

test('work that arrives at an empty queue starts with a wake, without waiting for a poll', async () => {
  const engine = scriptedEngine(async () => answer);
  const consumer = start(engine);
  await until('a look at the empty queue', async () => (await boss.getQueueStats(EXTRACT_QUEUE)) !== undefined);
  const { taskId } = await makeTask(bench, 1);
  consumer.wake();
  await terminal(taskId, 1);
});

test('errors are sorted: permanent ends at once, transient is tried again, a wait spends nothing, unknown is transient', async () => {
  const { taskId } = await makeTask(bench, 5);
  const engine = scriptedEngine(async (filename, _, nth) => {
    switch (filename) {
      case 'paper-0.txt':
        throw permanent('pdf_invalid', 'Not a PDF.');
      case 'paper-1.txt':
        if (nth < 3) throw new ExtractionError('transient', 'server_busy', 'Busy.');
        return answer;
      case 'paper-2.txt':
        if (nth < 9) throw new ExtractionError('defer', 'rate_limited', 'Later.', { retryAfterMs: 0 });
        return answer;
      case 'paper-3.txt':
        throw new TypeError('a bug');
      default:
        return answer;
    }
  });
  start(engine, { pollIntervalMs: 50 });
  await terminal(taskId, 5);
  const results = await listResults(sql, { taskId, limit: 10 });
  assert.deepEqual(
    results.map(({ status, attempts, error }) => ({ status, attempts, code: error?.code ?? null })),
    [
      { status: 'error', attempts: 1, code: 'pdf_invalid' },
      { status: 'completed', attempts: 3, code: null },
      { status: 'completed', attempts: 9, code: null },
      { status: 'error', attempts: 4, code: 'unexpected_error' },
      { status: 'completed', attempts: 1, code: null },
    ],
  );
});

test('a document deleted meanwhile is the error of its own result', async () => {
  const { taskId, projectId, resultIds } = await makeTask(bench, 2);
  await sql`
    delete from asl_schema.document_content
    where storage_key in (
      select storage_key from asl_schema.document where project_id = ${projectId} and filename = 'paper-1.txt')`;
  start(scriptedEngine(async () => answer));
  await terminal(taskId, 2);
  const { row } = await readResult(sql, resultIds[1] as string);
  assert.deepEqual([row.status, row.error_code], ['error', 'document_missing']);
  assert.equal((await progressOf(taskId)).success, 1);
});

test('an extraction that hangs is given up in time and frees its slot, even if the engine does not listen', async () => {
  const { taskId } = await makeTask(bench, 2);
  const engine = scriptedEngine((filename, _, nth) =>
    filename === 'paper-0.txt' && nth === 1 ? new Promise(() => {}) : Promise.resolve(answer),
  );
  start(engine, { slots: 1, extractionTimeoutMs: 100, pollIntervalMs: 50 });
  await terminal(taskId, 2);
  const [result] = await listResults(sql, { taskId, limit: 1 });
  assert.equal(result?.status, 'completed');
  const { attempts } = await readResult(sql, result?.resultId ?? '');
  assert.deepEqual(
    attempts.map(({ outcome, error_code }) => [outcome, error_code]),
    [
      ['retry', 'extraction_timeout'],
      ['completed', null],
    ],
  );
});

test('values that cannot be stored end their own result as an error, and no other', async () => {
  const { taskId } = await makeTask(bench, 4);
  await sql`
    create function refuse() returns trigger language plpgsql as $$
    begin
      raise exception 'refused' using errcode = '22P05';
    end $$`;
  await sql`
    create trigger refuse before update on asl_schema.extraction_result
    for each row when (new.extracted_data ->> 'poison' is not null) execute function refuse()`;
  const circular: Record<string, unknown> = {};
  circular.self = circular;
  const engine = scriptedEngine(async (filename) => {
    if (filename === 'paper-1.txt') return { data: { poison: true } as never };
    if (filename === 'paper-2.txt') return { data: circular as never };
    return answer;
  });
  try {
    start(engine);
    await terminal(taskId, 4);
  } finally {
    await sql`drop function refuse() cascade`;
  }
  const results = await listResults(sql, { taskId, limit: 10 });
  assert.deepEqual(
    results.map(({ status, error }) => [status, error?.code]),
    [
      ['completed', undefined],
      ['error', 'result_unstorable'],
      ['error', 'result_unstorable'],
      ['completed', undefined],
    ],
  );
});

test('jobs that name no result are thrown away and do not hold up the batch they came in', async () => {
  const strangers = [{}, { taskId: 'x', resultId: 'y' }, { taskId: uuidv7(), resultId: uuidv7() }];
  for (const data of strangers) await boss.send(EXTRACT_QUEUE, data, { singletonKey: uuidv7() });
  const { taskId } = await makeTask(bench, 3);
  const engine = scriptedEngine(async () => answer);
  start(engine);
  await terminal(taskId, 3);
  assert.equal(engine.started.length, 3);
  const live = await sql`select 1 from pgboss.job where state in ('created', 'retry', 'active')`;
  assert.equal(live.length, 0);
});

test('one row that cannot be claimed does not keep its batch from being claimed', async () => {
  const { taskId, resultIds } = await makeTask(bench, 4);
  // Its next attempt's number is taken: the claim breaks on the primary key of the history.
  const [poisoned] = resultIds as [string];
  await sql`
    insert into asl_schema.extraction_attempt (task_id, result_id, attempt, worker)
    values (${taskId}, ${poisoned}, 1, 'stranger')`;
  start(scriptedEngine(async () => answer));
  await terminal(taskId, 3);
  assert.deepEqual(await jobStates(sql, poisoned), ['active'], 'left to be delivered again');
});

test('a living extraction keeps its claim past its heartbeat, and is not run twice', async () => {
  const { resultIds, taskId } = await makeTask(bench, 1);
  const work = deferred<typeof answer>();
  const engine = scriptedEngine(() => work.promise);
  start(engine);
  const [resultId] = resultIds as [string];
  const heartbeat = async () =>
    (await sql`select heartbeat_on from pgboss.job where data ->> 'resultId' = ${resultId}`)[0]?.heartbeat_on as Date;
  await until('the extraction', () => engine.running.now === 1);
  const first = await heartbeat();
  await until('a sign of life', async () => (await heartbeat()) > first);
  await boss.supervise(EXTRACT_QUEUE);
  work.resolve(answer);
  await terminal(taskId, 1);
  assert.deepEqual([engine.started.length, (await readResult(sql, resultId)).row.attempt], [1, 1]);
});

test('a worker that has lost its claim is told so at its next heartbeat, and writes nothing', async () => {
  const { resultIds } = await makeTask(bench, 1);
  const [resultId] = resultIds as [string];
  const aborted = deferred<unknown>();
  const engine = scriptedEngine((_, { signal }) => {
    signal.addEventListener('abort', () => aborted.resolve(signal.reason), { once: true });
    return hang(signal);
  });
  start(engine, { slots: 1 });
  await until('the extraction', () => engine.running.now === 1);
  const { row } = await readResult(sql, resultId);
  await lapseHeartbeat(bench, row.job_id);
  const other = await takeResult(bench);
  assert.equal(await aborted.promise, 'claim_lost');
  const { row: after, attempts } = await readResult(sql, resultId);
  assert.deepEqual([after.status, after.attempt], ['extracting', other.claim.attempt]);
  assert.deepEqual(
    attempts.map(({ outcome }) => outcome),
    ['lost', null],
  );
});

test('a delivery that lapsed and comes back to the same process ends the attempt before it, and is watched over itself', async () => {
  const { resultIds, taskId } = await makeTask(bench, 1);
  const [resultId] = resultIds as [string];
  const aborted = deferred<unknown>();
  const second = deferred<typeof answer>();
  const engine = scriptedEngine((_, { signal }, nth) => {
    if (nth > 1) return second.promise;
    signal.addEventListener('abort', () => aborted.resolve(signal.reason), { once: true });
    return hang(signal);
  });
  start(engine, { slots: 2, pollIntervalMs: 50 });
  await until('the extraction', () => engine.running.now === 1);
  const { row } = await readResult(sql, resultId);
  await lapseHeartbeat(bench, row.job_id);
  assert.equal(await aborted.promise, 'claim_lost');
  await until('the second alone', () => engine.started.length === 2 && engine.running.now === 1);
  const beats = async () => (await sql`select heartbeat_on from pgboss.job where id = ${row.job_id}`)[0]?.heartbeat_on;
  const before = (await beats()) as Date;
  await until('a sign of life of the second', async () => ((await beats()) as Date) > before);
  second.resolve(answer);
  await terminal(taskId, 1);
  const { attempts } = await readResult(sql, resultId);
  assert.deepEqual(
    attempts.map(({ outcome }) => outcome),
    ['lost', 'completed'],
  );
});

test('a database that is away while a paper is read costs the paper no attempt; a settle that meets it is made again', async () => {
  const { taskId, resultIds } = await makeTask(bench, 1);
  const [resultId] = resultIds as [string];
  const away = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
  const engine = scriptedEngine(async (_, __, nth) => {
    if (nth === 1) throw away;
    return answer;
  });
  let refusals = 0;
  const complete = withMethod(boss, 'complete', (...args: Parameters<typeof boss.complete>) => {
    // The settle's own: the first two are met by an outage.
    if (refusals < 2 && engine.started.length === 2) {
      refusals += 1;
      return Promise.reject(away);
    }
    return boss.complete(...args);
  });
  start(engine, { boss: complete, pollIntervalMs: 50 });
  await terminal(taskId, 1);
  const { row, attempts } = await readResult(sql, resultId);
  assert.deepEqual([row.status, row.failed_attempts, refusals], ['completed', 0, 2]);
  assert.deepEqual(
    attempts.map(({ outcome, error_code }) => [outcome, error_code]),
    [
      ['deferred', 'database_away'],
      ['completed', null],
    ],
  );
});

test('a row that a frozen process holds keeps its own slot busy for a while, and no other result waiting', async () => {
  const { taskId, resultIds } = await makeTask(bench, 6);
  const [frozen] = resultIds as [string];
  const holder = await sql.reserve();
  try {
    await holder`begin`;
    await holder`select 1 from asl_schema.extraction_result where id = ${frozen} for update`;
    start(
      scriptedEngine(async () => answer),
      { slots: 2 },
    );
    await terminal(taskId, 5);
    await holder`rollback`;
  } finally {
    holder.release();
  }
  await terminal(taskId, 6);
});

test('a stop with the database away ends in bounded time', { timeout: 30_000 }, async () => {
  await makeTask(bench, 1);
  const away = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
  let cut = false;
  const cutOff = withMethod(boss, 'complete', (...args: Parameters<typeof boss.complete>) =>
    cut ? Promise.reject(away) : boss.complete(...args),
  );
  const engine = scriptedEngine((_, { signal }) => hang(signal));
  const consumer = start(engine, { boss: cutOff });
  await until('the extraction', () => engine.running.now === 1);
  cut = true;
  const startedAt = performance.now();
  await consumer.stop(100);
  assert.ok(performance.now() - startedAt < 10_000);
});

test('a stop lets running extractions end, takes no new one, and hands back the rest without spending an attempt', async () => {
  const { taskId, resultIds } = await makeTask(bench, 4);
  const ending = deferred<typeof answer>();
  const engine = scriptedEngine((filename, { signal }) => (filename === 'paper-0.txt' ? ending.promise : hang(signal)));
  const consumer = start(engine, { slots: 2 });
  await until('two extractions', () => engine.running.now === 2);
  const stopping = consumer.stop(500);
  ending.resolve(answer);
  await stopping;
  assert.deepEqual(engine.started.sort(), ['paper-0.txt', 'paper-1.txt']);
  const { success, pending, extracting, failed } = await progressOf(taskId);
  assert.deepEqual({ success, pending, extracting, failed }, { success: 1, pending: 3, extracting: 0, failed: 0 });
  const { row, attempts } = await readResult(sql, resultIds[1] as string);
  assert.deepEqual([row.attempt, row.failed_attempts, attempts[0]?.outcome], [1, 0, 'released']);

  const next = scriptedEngine(async () => answer);
  start(next);
  await terminal(taskId, 4);
  assert.equal(next.started.length, 3);
});

test('two consumers share a task and run no paper twice', async () => {
  const { taskId } = await makeTask(bench, 80);
  const engines = [1, 2].map(() => scriptedEngine(async () => answer));
  for (const engine of engines) start(engine, { slots: 3 });
  await terminal(taskId, 80);
  const started = engines.flatMap((engine) => engine.started);
  assert.deepEqual([started.length, new Set(started).size], [80, 80]);
});

test('a result that was claimed ahead of a slot, and waits in vain for one, is given to others and has spent nothing', async () => {
  const quick = deferred<void>();
  const go = deferred<void>();
  let runs = 0;
  const engine = scriptedEngine(async (_, { signal }) => {
    // Extractions seem short at first, so some are claimed ahead; then all of them take long.
    if (++runs > 40) {
      quick.resolve();
      await Promise.race([go.promise, hang(signal)]);
    }
    return answer;
  });
  const { taskId } = await makeTask(bench, 60);
  start(engine, { slots: 4 });
  await quick.promise;
  const released = await until('some given back', async () => {
    const rows = await sql<{ id: string }[]>`
      select result_id as id from asl_schema.extraction_attempt
      where task_id = ${taskId} and outcome = 'released' and error_code = 'no_free_slot'`;
    return rows.length > 0 && rows;
  });
  const rows = await sql<{ failed: number }[]>`
    select failed_attempts as failed from asl_schema.extraction_result where id = any(${released.map(({ id }) => id)})`;
  assert.ok(rows.every(({ failed }) => failed === 0));
  assert.equal(engine.running.most, 4);
  go.resolve();
  await terminal(taskId, 60);
  assert.equal((await progressOf(taskId)).success, 60);
});

test('of results that are delivered again no more are claimed together than there are slots', async () => {
  const { taskId } = await makeTask(bench, 60);
  const consumer = start(
    scriptedEngine(async () => answer),
    { slots: 4 },
  );
  await terminal(taskId, 60);
  const largest = async (of: string) => {
    const [group] = await sql<{ size: number }[]>`
      select count(*)::int as size from asl_schema.extraction_attempt where task_id = ${of}
      group by started_at order by size desc limit 1`;
    return group?.size ?? 0;
  };
  assert.ok((await largest(taskId)) > 4, 'short ones are claimed ahead');

  const { taskId: again } = await makeTask(bench, 60);
  await sql`
    update pgboss.job set state = 'retry', started_on = now()
    where name = ${EXTRACT_QUEUE} and data ->> 'taskId' = ${again}`;
  consumer.wake();
  await terminal(again, 60);
  assert.equal(await largest(again), 4);
  assert.equal((await progressOf(again)).success, 60);
});
