import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PgBoss } from 'pg-boss';
import { settleResult } from '../../src/tasks/settle-result.ts';
import type { Ending } from '../../src/tasks/settlement.ts';
import { taskProgress } from '../../src/tasks/task-progress.ts';
import {
  fetchDeliveries,
  type HeldClaim,
  jobStates,
  lapseHeartbeat,
  limits,
  makeTask,
  openTestBench,
  readResult,
  takeResult,
  withMethod,
} from '../support/fixtures.ts';
import { untilBlocked } from '../support/waiting.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss } = bench;

function settle({ claim, job }: HeldClaim, ending: Ending, queue: PgBoss = boss, maxAttempts = limits.maxAttempts) {
  const { taskId, resultId, attempt } = claim;
  return settleResult(sql, queue, { taskId, resultId, attempt, job, ending }, { ...limits, maxAttempts });
}

/** Makes a delayed job due, as the passing of time would. */
async function passDelay(resultId: string): Promise<void> {
  await sql`update pgboss.job set start_after = now() where data ->> 'resultId' = ${resultId} and state = 'created'`;
}

test('a completed extraction is stored with its job in one transaction', async () => {
  await makeTask(bench, 1);
  const held = await takeResult(bench);
  const { resultId } = held.claim;
  const data = { title: { value: 'A paper', status: 'found' } };
  assert.equal(await settle(held, { kind: 'completed', data, usage: { pages: 3 } }), 'completed');
  const { row, attempts } = await readResult(sql, resultId);
  assert.deepEqual(
    [row.status, row.extracted_data, row.usage, row.error_code, row.delivery, row.failed_attempts],
    ['completed', data, { pages: 3 }, null, null, 0],
  );
  assert.ok(row.finished_at);
  assert.deepEqual(attempts, [{ attempt: 1, outcome: 'completed', error_code: null, error_message: null }]);
  assert.deepEqual(await jobStates(sql, resultId), ['completed']);
});

test('a permanent error ends the result at once', async () => {
  await makeTask(bench, 1);
  const held = await takeResult(bench);
  const { resultId } = held.claim;
  assert.equal(await settle(held, { kind: 'error', code: 'pdf_invalid', message: 'Not a PDF.' }), 'error');
  const { row, attempts } = await readResult(sql, resultId);
  assert.deepEqual(
    [row.status, row.error_code, row.error_message, row.failed_attempts, row.extracted_data],
    ['error', 'pdf_invalid', 'Not a PDF.', 1, null],
  );
  assert.deepEqual(attempts, [
    { attempt: 1, outcome: 'error', error_code: 'pdf_invalid', error_message: 'Not a PDF.' },
  ]);
  assert.deepEqual(await jobStates(sql, resultId), ['completed']);
});

test('a transient error waits its turn, is tried again, and becomes an error on its last attempt; no error is lost', async () => {
  await makeTask(bench, 1);
  const held = await takeResult(bench);
  const { resultId } = held.claim;
  const ending = (n: number): Ending => ({ kind: 'retry', code: `blip_${n}`, message: `blip ${n}`, delayMs: 60_000 });

  assert.equal(await settle(held, ending(1), boss, 3), 'pending');
  const waiting = await readResult(sql, resultId);
  assert.deepEqual(
    [waiting.row.status, waiting.row.error_code, waiting.row.failed_attempts, waiting.row.finished_at],
    ['pending', null, 1, null],
  );
  assert.notEqual(waiting.row.job_id, held.job.id);
  assert.deepEqual(await jobStates(sql, resultId), ['completed', 'created']);
  assert.deepEqual(await fetchDeliveries(bench, 1), [], 'not before its delay');

  await passDelay(resultId);
  assert.equal(await settle(await takeResult(bench, 3), ending(2), boss, 3), 'pending');
  await passDelay(resultId);
  assert.equal(await settle(await takeResult(bench, 3), ending(3), boss, 3), 'error');
  const { row, attempts } = await readResult(sql, resultId);
  assert.deepEqual([row.status, row.error_code, row.attempt, row.failed_attempts], ['error', 'blip_3', 3, 3]);
  assert.deepEqual(attempts, [
    { attempt: 1, outcome: 'retry', error_code: 'blip_1', error_message: 'blip 1' },
    { attempt: 2, outcome: 'retry', error_code: 'blip_2', error_message: 'blip 2' },
    { attempt: 3, outcome: 'error', error_code: 'blip_3', error_message: 'blip 3' },
  ]);
  assert.deepEqual(await jobStates(sql, resultId), ['completed', 'completed', 'completed']);
});

for (const kind of ['deferred', 'released'] as const) {
  test(`a result that is ${kind} goes back without spending an attempt, however often`, async () => {
    await makeTask(bench, 1);
    const { resultId } = (await takeOnce()).claim;
    for (let n = 2; n <= 6; n++) {
      await passDelay(resultId);
      await takeOnce();
    }
    const { row, attempts } = await readResult(sql, resultId);
    assert.deepEqual([row.status, row.attempt, row.failed_attempts], ['pending', 6, 0]);
    assert.deepEqual(
      attempts.map(({ outcome }) => outcome),
      Array(6).fill(kind),
    );
    await passDelay(resultId);
    assert.equal(await settle(await takeResult(bench, 2), { kind: 'completed', data: {} }), 'completed');

    async function takeOnce(): Promise<HeldClaim> {
      const held = await takeResult(bench, 2);
      assert.equal(await settle(held, { kind, code: 'wait', message: 'wait', delayMs: 1000 }, boss, 2), 'pending');
      return held;
    }
  });
}

test('a late worker changes nothing, whatever happened to its result meanwhile', async (t) => {
  const endings: Ending[] = [
    { kind: 'completed', data: { late: true } },
    { kind: 'error', code: 'late', message: 'late' },
    { kind: 'retry', code: 'late', message: 'late', delayMs: 0 },
    { kind: 'released', code: 'late', message: 'late', delayMs: 0 },
  ];
  const meanwhile: Record<string, (held: HeldClaim) => Promise<unknown>> = {
    'another worker has it': async ({ job }) => {
      await lapseHeartbeat(bench, job.id);
      await takeResult(bench);
    },
    'another worker has completed it': async ({ job }) => {
      await lapseHeartbeat(bench, job.id);
      await settle(await takeResult(bench), { kind: 'completed', data: { first: true } });
    },
    'a sweep has made it an error': ({ claim }) => sql`
      update asl_schema.extraction_result
      set status = 'error', error_code = 'extraction_stalled', finished_at = now()
      where id = ${claim.resultId}`,
    'the user has cancelled it': ({ claim }) => sql`
      update asl_schema.extraction_result set status = 'cancelled', finished_at = now() where id = ${claim.resultId}`,
    'it waits for a retry': (held) =>
      settle(held, { kind: 'retry', code: 'blip', message: 'blip', delayMs: 3_600_000 }),
    'its task is gone': ({ claim }) => sql`delete from asl_schema.extraction_task where id = ${claim.taskId}`,
  };
  for (const [what, happen] of Object.entries(meanwhile)) {
    await t.test(what, async () => {
      for (const ending of endings) {
        const { resultIds, taskId } = await makeTask(bench, 1);
        const held = await takeResult(bench);
        await happen(held);
        const look = async () => ({
          rows: [...(await sql`select * from asl_schema.extraction_result where id = ${resultIds[0] as string}`)],
          attempts: [
            ...(await sql`select * from asl_schema.extraction_attempt where result_id = ${resultIds[0] as string}`),
          ],
          progress: await taskProgress(sql, taskId),
        });
        const before = await look();
        assert.equal(await settle(held, ending), 'stale');
        assert.deepEqual(await look(), before);
      }
    });
  }
});

test('a settle waits for a sweep that holds its row, and is stale when that has ended the result', async () => {
  await makeTask(bench, 1);
  const held = await takeResult(bench);
  const sweep = await sql.reserve();
  try {
    await sweep`begin`;
    await sweep`
      update asl_schema.extraction_result
      set status = 'error', error_code = 'extraction_stalled', finished_at = now()
      where id = ${held.claim.resultId}`;
    const settling = settle(held, { kind: 'completed', data: { late: true } });
    await untilBlocked(sql, 'with told as');
    await sweep`commit`;
    assert.equal(await settling, 'stale');
  } finally {
    sweep.release();
  }
  const { row } = await readResult(sql, held.claim.resultId);
  assert.deepEqual([row.status, row.error_code, row.extracted_data], ['error', 'extraction_stalled', null]);
});

test('a late worker does not complete the delivery of the worker that took over', async () => {
  await makeTask(bench, 1);
  const first = await takeResult(bench);
  await lapseHeartbeat(bench, first.job.id);
  await takeResult(bench);
  assert.equal(await settle(first, { kind: 'completed', data: {} }), 'stale');
  assert.deepEqual(await jobStates(sql, first.claim.resultId), ['active']);
});

for (const broken of ['complete', 'insert'] as const) {
  test(`a settle that breaks in ${broken} changes neither the row nor the job, and can be made again`, async () => {
    await makeTask(bench, 1);
    const held = await takeResult(bench);
    const { resultId } = held.claim;
    const before = await readResult(sql, resultId);
    const queue = withMethod(boss, broken, () => Promise.reject(new Error('gone')));
    const ending: Ending = { kind: 'retry', code: 'blip', message: 'blip', delayMs: 0 };
    await assert.rejects(settle(held, ending, queue), /gone/);
    assert.deepEqual(await readResult(sql, resultId), before);
    assert.deepEqual(await jobStates(sql, resultId), ['active']);
    assert.equal(await settle(held, ending), 'pending');
    assert.deepEqual(await jobStates(sql, resultId), ['completed', 'created']);
    await settle(await takeResult(bench), { kind: 'completed', data: {} });
  });
}

test('no input breaks a row: NUL, lone surrogates, numbers that JSON has not, and 100 MB of text', async () => {
  await makeTask(bench, 4);
  const settleNext = async (data: object) => {
    const held = await takeResult(bench);
    assert.equal(await settle(held, { kind: 'completed', data }), 'completed');
    return (await readResult(sql, held.claim.resultId)).row.extracted_data;
  };
  assert.deepEqual(await settleNext({ 'k\u0000': 'a\u0000b', list: ['\ud800', '\udc00x', '\ud83c\udf3e'] }), {
    'k\uFFFD': 'a\uFFFDb',
    list: ['\uFFFD', '\uFFFDx', '\ud83c\udf3e'],
  });
  assert.deepEqual(await settleNext({ nan: Number.NaN, infinite: -Infinity, nothing: undefined, when: new Date(0) }), {
    nan: null,
    infinite: null,
    when: '1970-01-01T00:00:00.000Z',
  });
  assert.deepEqual(await settleNext({ escaped: '\\u0000 "quoted" \\' }), { escaped: '\\u0000 "quoted" \\' });
  const long = 'word '.repeat(20_000_000);
  assert.equal(((await settleNext({ long })) as { long: string }).long.length, long.length);
});

test('an error message of any length and script is cut by bytes, inside no character', async () => {
  await makeTask(bench, 1);
  const held = await takeResult(bench);
  await settle(held, { kind: 'error', code: 'long', message: `${'文献解析失败'.repeat(500)}\u0000` });
  const { row, attempts } = await readResult(sql, held.claim.resultId);
  assert.ok(Buffer.byteLength(row.error_message) <= 2000);
  assert.match(row.error_message, /^(文献解析失败)+文?献?解?析?失?…$/u);
  assert.equal(attempts[0]?.error_message, row.error_message);
});
