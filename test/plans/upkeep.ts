import assert from 'node:assert/strict';
import { v7 as uuidv7 } from 'uuid';
import { inTransaction } from '../../src/db.ts';
import { FANOUT } from '../../src/fanout/fanout.ts';
import { sweepFanoutTasks } from '../../src/fanout/sweep-fanout.ts';
import { fillStage, findStagesToFill } from '../../src/permits/grant-permits.ts';
import { findGranted, releasePermit, renewPermits, requestPermit } from '../../src/permits/permit-store.ts';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { deleteExpiredTasks, deleteTask } from '../../src/tasks/delete-task.ts';
import { retryTask } from '../../src/tasks/retry-task.ts';
import { sweepTasks } from '../../src/tasks/sweep-tasks.ts';
import { NO_LIMITS } from '../../src/tasks/task.ts';
import type { TaskMode } from '../../src/tasks/task-mode.ts';
import { addNext, makeFanoutTask } from '../support/fanout.ts';
import { limits, makeDocuments, type TestBench, TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';
import { batch, type HotStatement, one, size } from './hot-statement.ts';
import { MODES_UNDER_TEST, makeCompleteTask, makeSmallTask, type Scene, standBehind, takeBatch } from './scene.ts';

const TEN_YEARS_MS = 10 * 365 * 24 * 60 * 60 * 1000;
/** Results that one round of the aggregator looks at. */
const ROUND = 100;

/** What goes on by itself, and what is done to whole tasks. */
export const UPKEEP: HotStatement[] = [
  ...MODES_UNDER_TEST.flatMap((mode) => [closing(mode), sweeping(mode)]),
  {
    name: 'the last fuse of fan-out tasks',
    rows: size,
    // Every task is looked at as if nothing had moved for long.
    run: async ({ bench }, sql) => assert.equal((await sweepFanoutTasks(sql, bench.boss, { idleMs: 0 })).failed, 0),
  },
  {
    name: 'a look for tasks whose time is over',
    rows: one,
    run: (_, sql) => deleteExpiredTasks(sql, { retentionMs: TEN_YEARS_MS, maxResults: 1000 }),
  },
  expanding('listed'),
  expanding('project'),
  {
    name: 'what a user does to a task',
    rows: batch,
    async run(scene, sql) {
      const { boss } = scene.bench;
      const projectId = uuidv7();
      const documentIds = await makeDocuments(scene.bench.sql, projectId, scene.batch);
      const request = { projectId, templateId: TRIAL_TEMPLATE_ID, documentIds, idempotencyKey: projectId };
      const created = await createTask(sql, boss, request, limits);
      assert.ok(created.outcome === 'created');
      assert.equal((await createTask(sql, boss, request, limits)).outcome, 'replayed');
      const { taskId } = created.task;
      const cancelled = { outcome: 'cancelled', ended: scene.batch };
      assert.deepEqual(await cancelTask(sql, boss, taskId), cancelled);
      const retried = await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, limits);
      assert.deepEqual(retried, { outcome: 'retried', retried: scene.batch });
      assert.deepEqual(await cancelTask(sql, boss, taskId), cancelled);
      assert.equal(await deleteTask(sql, taskId), 'deleted');
    },
  },
  {
    name: 'a ticket of a stage',
    rows: ({ tickets }) => tickets,
    async run(_, sql) {
      const ticket = { ticketId: uuidv7(), stage: 'parse' as const };
      await requestPermit(sql, { ...ticket, taskId: uuidv7(), holder: 'test', ttlMs: 60_000 });
      assert.equal((await renewPermits(sql, { ticketIds: [ticket.ticketId], ttlMs: 60_000 })).size, 1);
      await findGranted(sql, [ticket.ticketId]);
      await findStagesToFill(sql, ['parse']);
      await fillStage(sql, 'parse');
      await releasePermit(sql, { ...ticket, outcome: { kind: 'success' }, tokens: 0 });
    },
  },
];

function closing(mode: TaskMode): HotStatement {
  return {
    name: `a close, ${mode.name}`,
    rows: ({ open }) => open,
    async run({ bench }, sql) {
      const taskId = await makeCompleteTask(bench, mode);
      assert.deepEqual(await inTransaction(sql, (tx) => mode.close(tx, { limit: 100 })), [taskId]);
    },
  };
}

function sweeping(mode: TaskMode): HotStatement {
  return {
    name: `a round of the aggregator, ${mode.name}`,
    rows: ({ open }) => Math.max(ROUND, open),
    async run(scene, sql) {
      const expected = await makeWorkForARound(scene, mode);
      const options = { mode, intervalMs: 0, staleAfterMs: 60_000, limit: ROUND, sweeper: 'test' };
      const round = await sweepTasks(sql, scene.bench.boss, options);
      assert.deepEqual(round, { outcome: 'swept', dueInMs: 0, ...expected });
    },
  };
}

/** One of each that a round may find; answers what it will say. */
async function makeWorkForARound(scene: Scene, mode: TaskMode) {
  const { bench } = scene;
  const { sql, boss } = bench;
  const [stale, lost] = await takeBatch(scene, mode, 2);
  assert.ok(stale && lost);
  await sql`
    update asl_schema.extraction_result
    set updated_at = now() - interval '1 hour'
    where id = ${stale.claim.resultId}`;
  await boss.deleteJob(mode.queue, [stale.job.id, lost.job.id]);
  const overdue = await makeSmallTask(bench, mode);
  await sql`update asl_schema.extraction_task set deadline_at = now() where id = ${overdue.taskId}`;
  await makeFailingTask(bench, mode);
  await makeCompleteTask(bench, mode);
  // What its deadline has stopped is closed in the same round; in fan-out mode by the count itself.
  if (mode !== FANOUT) return { stale: 1, lostJobs: 1, stopped: 2, closed: 2 };
  const abandoned = await makeFanoutTask(bench, 1);
  await sql`delete from pgboss.job where data ->> 'taskId' = ${abandoned.taskId}`;
  return { stale: 1, lostJobs: 1, stopped: 3, closed: 1 };
}

/** An open task that may have no errors, and has one. */
async function makeFailingTask(bench: TestBench, mode: TaskMode): Promise<void> {
  const { sql } = bench;
  const { taskId, resultIds } = await makeSmallTask(bench, mode);
  const [failed = ''] = resultIds;
  await sql`update asl_schema.extraction_task set max_failed_count = 0 where id = ${taskId}`;
  await sql`
    update asl_schema.extraction_result
    set status = 'error', error_code = 'pdf_invalid', error_message = 'no PDF', finished_at = now()
    where id = ${failed}`;
  await sql`delete from pgboss.job where data ->> 'resultId' = ${failed}`;
}

function expanding(kind: 'listed' | 'project'): HotStatement {
  return {
    name: `a chunk of results, ${kind}`,
    rows: batch,
    async run(scene, sql) {
      const held = scene.expanding[kind];
      assert.equal((await addNext({ ...scene.bench, sql }, held, scene.batch)).outcome, 'added');
      await standBehind(scene.bench, FANOUT, held.taskId);
    },
  };
}
