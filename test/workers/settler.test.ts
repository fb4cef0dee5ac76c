import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { connect } from '../../src/db.ts';
import { FANOUT } from '../../src/fanout/fanout.ts';
import { MODES } from '../../src/modes.ts';
import type { Ending, Settlement } from '../../src/tasks/settlement.ts';
import { createSettler } from '../../src/workers/settler.ts';
import { makeExpandedTask, readTally } from '../support/fanout.ts';
import {
  type HeldClaim,
  jobStates,
  limits,
  makeTask,
  openTestBench,
  readResult,
  takeResults,
} from '../support/fixtures.ts';
import { until, untilBlocked } from '../support/waiting.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss, url } = bench;

beforeEach(async () => {
  await sql`delete from asl_schema.extraction_task`;
  await boss.deleteAllJobs();
});

const DONE: Ending = { kind: 'completed', data: { title: 'A paper' } };

function settlement({ claim: { taskId, resultId, attempt }, job }: HeldClaim, ending = DONE): Settlement {
  return { taskId, resultId, attempt, job, ending };
}

/** A settler whose statements are counted. */
function countingSettler(mode = MODES.scatter) {
  const statements: string[] = [];
  const counted = connect(url, { max: 5, applicationName: 'settler', onStatement: (text) => statements.push(text) });
  const settle = createSettler({ sql: counted, boss, limits, mode });
  const settles = () => statements.filter((text) => text.includes('with told as')).length;
  return { settle, settles, close: () => counted.end() };
}

for (const mode of [MODES.scatter, MODES.fanout]) {
  test(`${mode.name}: what ends while a settle is under way is settled with the next, each with its own outcome`, async () => {
    const own = { ...bench, mode };
    const { taskId } = await (mode.name === 'scatter' ? makeTask(own, 20) : makeExpandedTask(own, 20));
    const held = await takeResults(own, 20);
    const [stale] = held;
    await sql`
      update asl_schema.extraction_result set attempt = attempt + 1, failed_attempts = 1
      where id = ${stale?.claim.resultId as string}`;
    const { settle, settles, close } = countingSettler(mode);
    const endings: Ending[] = [
      DONE,
      { kind: 'error', code: 'pdf_invalid', message: 'Not a PDF.' },
      { kind: 'retry', code: 'busy', message: 'busy', delayMs: 60_000, usage: { pages: 2 } },
      { kind: 'released', code: 'worker_stopped', message: 'stopped', delayMs: 0 },
    ];
    const outcomes = await Promise.all(
      held.map((one, i) => settle(settlement(one, endings[i % endings.length] ?? DONE))),
    );
    const expected = ['completed', 'error', 'pending', 'pending'];
    assert.deepEqual(
      outcomes,
      held.map((_, i) => (i === 0 ? 'stale' : expected[i % expected.length])),
    );
    assert.equal(settles(), 2, 'the first alone, and then all the others');
    for (const [i, { claim, job }] of held.entries()) {
      const { row, attempts } = await readResult(sql, claim.resultId);
      const ending = endings[i % endings.length];
      if (i === 0) continue;
      assert.equal(row.status, outcomes[i]);
      assert.equal(attempts[0]?.outcome, ending?.kind);
      assert.deepEqual(row.usage, ending && 'usage' in ending ? ending.usage : null);
      assert.deepEqual(row.extracted_data, ending === DONE ? DONE.data : null);
      const [state] = await sql<{ state: string }[]>`select state::text from pgboss.job where id = ${job.id}`;
      assert.equal(state?.state, 'completed');
      assert.equal((await jobStates(sql, claim.resultId)).length, row.status === 'pending' ? 2 : 1);
    }
    if (mode === MODES.fanout) {
      const { tally } = await readTally(bench, taskId);
      assert.deepEqual([tally.success, tally.failed], [4, 5]);
    }
    await close();
  });
}

test('nobody waits while nothing is under way: settles one after the other are settled alone, at once', async () => {
  await makeTask(bench, 3);
  const { settle, settles, close } = countingSettler();
  for (const one of await takeResults(bench, 3)) assert.equal(await settle(settlement(one)), 'completed');
  assert.equal(settles(), 3);
  await close();
});

test('values that the database refuses are their own result’s trouble, and no neighbour’s', async () => {
  await makeTask(bench, 6);
  await sql.unsafe(`
    create or replace function refuse() returns trigger language plpgsql as $$
    begin
      if new.extracted_data ->> 'title' = 'poison' then raise exception 'refused' using errcode = '22000'; end if;
      return new;
    end $$;
    create or replace trigger refuse before update on asl_schema.extraction_result for each row execute function refuse();`);
  const held = await takeResults(bench, 6);
  const { settle, close } = countingSettler();
  const outcomes = await Promise.allSettled(
    held.map((one, i) => settle(settlement(one, i === 3 ? { kind: 'completed', data: { title: 'poison' } } : DONE))),
  );
  assert.deepEqual(
    outcomes.map((one) => (one.status === 'fulfilled' ? one.value : one.reason.code)),
    ['completed', 'completed', 'completed', '22000', 'completed', 'completed'],
  );
  await sql`drop trigger refuse on asl_schema.extraction_result`;
  await close();
});

test('data that can’t be written as JSON fails for itself, before it meets any other', async () => {
  await makeTask(bench, 2);
  const [one, other] = await takeResults(bench, 2);
  assert.ok(one && other);
  const circle: Record<string, unknown> = {};
  circle.self = circle;
  const { settle, close } = countingSettler();
  const outcomes = await Promise.allSettled([
    settle(settlement(one, { kind: 'completed', data: circle })),
    settle(settlement(other)),
  ]);
  assert.deepEqual(
    outcomes.map((each) => each.status),
    ['rejected', 'fulfilled'],
  );
  await close();
});

test('a row that somebody holds is waited for alone: the others of its group are settled meanwhile', async () => {
  await makeTask(bench, 5);
  const held = await takeResults(bench, 5);
  const holder = await sql.reserve();
  const { settle, close } = countingSettler();
  try {
    await holder`begin`;
    await holder`
      select 1 from asl_schema.extraction_result where id = ${held[2]?.claim.resultId as string} for update`;
    const ended: number[] = [];
    const settling = held.map((one, i) => settle(settlement(one)).then((outcome) => ended.push(i) && outcome));
    await until('the others ended', () => ended.length === 4);
    await untilBlocked(sql, 'with told as');
    await holder`commit`;
    assert.deepEqual(await Promise.all(settling), Array(5).fill('completed'));
    assert.equal(ended.at(-1), 2);
  } finally {
    holder.release();
  }
  await close();
});

test('a task whose counter is held up does not hold up the settles of another', async () => {
  const own = { ...bench, mode: FANOUT };
  const slow = await makeExpandedTask(own, 3);
  const slowHeld = await takeResults(own, 3);
  await makeExpandedTask(own, 3);
  const quickHeld = await takeResults(own, 3);
  const holder = await sql.reserve();
  const { settle, close } = countingSettler(FANOUT);
  try {
    await holder`begin`;
    await holder`select 1 from asl_schema.fanout_tally where task_id = ${slow.taskId} for update`;
    const waiting = slowHeld.map((one) => settle(settlement(one)));
    const quick = await Promise.all(quickHeld.map((one) => settle(settlement(one))));
    assert.deepEqual(quick, Array(3).fill('completed'));
    await holder`commit`;
    assert.deepEqual(await Promise.all(waiting), Array(3).fill('completed'));
  } finally {
    holder.release();
  }
  await close();
});

test('fields keep the order of their template, in a group as alone', async () => {
  await makeTask(bench, 4);
  const data = { zebra: 1, a: { z: 1, b: 2 }, '10': 'ten', m: [3, 1, 2] };
  const { settle, close } = countingSettler();
  const held = await takeResults(bench, 4);
  await Promise.all(held.map((one) => settle(settlement(one, { kind: 'completed', data }))));
  const rows = await sql<{ text: string }[]>`select extracted_data::text as text from asl_schema.extraction_result`;
  for (const { text } of rows) assert.equal(text, JSON.stringify(data));
  await close();
});
