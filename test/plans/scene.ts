import assert from 'node:assert/strict';
import { FANOUT } from '../../src/fanout/fanout.ts';
import { MANAGER_QUEUE } from '../../src/queue.ts';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { SCATTER } from '../../src/tasks/scatter.ts';
import { settleResults } from '../../src/tasks/settle-result.ts';
import { type Ending, encodeSettlement } from '../../src/tasks/settlement.ts';
import type { TaskMode } from '../../src/tasks/task-mode.ts';
import { addNext, type HeldTask, makeExpandedTask, makeFanoutTask, takeManagerJob } from '../support/fanout.ts';
import {
  type HeldClaim,
  limits,
  makeTask,
  type TestBench,
  TRIAL_TEMPLATE_ID,
  takeResults,
} from '../support/fixtures.ts';

export const MODES_UNDER_TEST: readonly TaskMode[] = [SCATTER, FANOUT];

type MadeTask = { taskId: string; resultIds: string[] };

/** What there is to do at the moment, whatever has been done in all the years before. */
export type Scene = {
  bench: TestBench;
  /** Results that a worker takes at a time, and documents that a manager reads. */
  batch: number;
  /** Results of each of the large tasks. */
  size: number;
  /** Open tasks, of both modes together. */
  open: number;
  /** Calls that wait for one stage. */
  tickets: number;
  large: { scatter: MadeTask; fanout: MadeTask };
  /** Tasks in a manager's hands: one that lists its documents, one over all of its project. */
  expanding: { listed: HeldTask; project: HeldTask };
};

export type Amounts = { batch: number; size: number; small: number; tickets: number };

/** A large open task and `small` ones in each mode, and fan-out tasks whose results are still to be made. */
export async function makeScene(bench: TestBench, { batch, size, small, tickets }: Amounts): Promise<Scene> {
  const { sql } = bench;
  const large = { scatter: await makeTask(bench, size), fanout: await makeExpandedTask(bench, size) };
  for (const mode of MODES_UNDER_TEST) {
    for (let i = 0; i < small; i++) await standBehind(bench, mode, (await makeSmallTask(bench, mode)).taskId);
  }
  await makeFanoutTask(bench, size, { listed: true });
  const listed = await takeManagerJob(bench);
  await makeFanoutTask(bench, size);
  const project = await takeManagerJob(bench);
  // The first chunk counts all documents of the project, once.
  await addNext(bench, project, 1);
  await standBehind(bench, FANOUT, project.taskId);
  for (let i = 0; i < small; i++) await makeFanoutTask(bench, 1);
  // They wait for their managers, behind those that the tests take.
  await sql`
    update pgboss.job
    set start_after = now() + interval '1 day'
    where name = ${MANAGER_QUEUE}
      and state = 'created'`;
  await sql`
    insert into asl_schema.permit (id, stage, task_id, holder, expires_at)
    select gen_random_uuid(), 'parse', gen_random_uuid(), 'test', now() + interval '1 day'
    from generate_series(1, ${tickets}::int)`;
  return { bench, batch, size, open: 3 * small + 4, tickets, large, expanding: { listed, project } };
}

/** Ends all that is open. */
export async function clearScene({ bench: { sql, boss } }: Scene): Promise<void> {
  const open = await sql<{ id: string }[]>`select id from asl_schema.extraction_task where status = 'processing'`;
  for (const { id } of open) await cancelTask(sql, boss, id);
  await sql`delete from asl_schema.permit`;
}

/** An open task of five results. */
export async function makeSmallTask(bench: TestBench, mode: TaskMode): Promise<MadeTask> {
  return mode === SCATTER ? await makeTask(bench, 5) : await makeExpandedTask(bench, 5);
}

/** An open task that waits for nothing but its close. */
export async function makeCompleteTask({ sql, boss }: TestBench, { name: mode }: TaskMode): Promise<string> {
  const request = { mode, projectId: 'empty', templateId: TRIAL_TEMPLATE_ID, documentIds: [], idempotencyKey: null };
  const created = await createTask(sql, boss, request, limits);
  assert.ok(created.outcome === 'created');
  const { taskId } = created.task;
  await sql`update asl_schema.extraction_task set status = 'processing', completed_at = null where id = ${taskId}`;
  return taskId;
}

/** Puts the waiting jobs of a task at the end of the line, so that workers go on with the large ones. */
export async function standBehind({ sql }: TestBench, mode: TaskMode, taskId: string): Promise<void> {
  await sql`
    update pgboss.job
    set priority = -1000000
    where name = ${mode.queue}
      and state < 'active'
      and data ->> 'taskId' = ${taskId}`;
}

/** Results of one task, the large one, in a worker's hands. */
export async function takeBatch({ bench, batch }: Scene, mode: TaskMode, count = batch): Promise<HeldClaim[]> {
  const held = await takeResults({ ...bench, mode }, count);
  assert.equal(new Set(held.map(({ claim }) => claim.taskId)).size, 1);
  return held;
}

export const DONE: Ending = { kind: 'completed', data: { title: { value: 'A title' } }, usage: { pages: 3 } };

export const toSettlements = (held: readonly HeldClaim[], ending: Ending) =>
  held.map(({ job, claim: { taskId, resultId, attempt } }) =>
    encodeSettlement({ taskId, resultId, attempt, job, ending }),
  );

/** Completes what a test has taken. */
export async function finish({ bench: { sql, boss } }: Scene, mode: TaskMode, held: readonly HeldClaim[]) {
  const outcomes = await settleResults(sql, boss, toSettlements(held, DONE), limits, mode);
  assert.ok(outcomes.every((outcome) => outcome === 'completed'));
}
