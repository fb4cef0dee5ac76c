import { v7 as uuidv7 } from 'uuid';
import { addChunk, type ChunkOutcome } from '../../src/fanout/expand-task.ts';
import { FANOUT } from '../../src/fanout/fanout.ts';
import type { ManagerJob } from '../../src/fanout/manager-queue.ts';
import { CHILD_QUEUE, type HeldJob, MANAGER_QUEUE, on } from '../../src/queue.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { NO_LIMITS, type TaskLimits } from '../../src/tasks/task.ts';
import { limits, makeDocuments, type TestBench, TRIAL_TEMPLATE_ID } from './fixtures.ts';

export type FanoutTask = { taskId: string; projectId: string; documentIds: string[] };

export type FanoutRequest = {
  /** The task names its documents; default: it is about all of its project. */
  listed?: boolean;
  idempotencyKey?: string;
  limits?: Partial<TaskLimits>;
};

/** A fan-out task over `count` new documents of a project of its own; no manager has been at it yet. */
export async function makeFanoutTask(
  { sql, boss }: TestBench,
  count: number,
  request: FanoutRequest = {},
): Promise<FanoutTask> {
  const projectId = `project-${uuidv7()}`;
  const documentIds = await makeDocuments(sql, projectId, count);
  const created = await createTask(
    sql,
    boss,
    {
      mode: 'fanout',
      projectId,
      templateId: TRIAL_TEMPLATE_ID,
      documentIds: request.listed ? documentIds : null,
      idempotencyKey: request.idempotencyKey ?? null,
      limits: { ...NO_LIMITS, ...request.limits },
    },
    limits,
  );
  if (created.outcome !== 'created') throw new Error(`task not created: ${created.outcome}`);
  return { taskId: created.task.taskId, projectId, documentIds };
}

export type HeldTask = { taskId: string; job: HeldJob };

/** Takes a task from the managers' queue, as a manager does. */
export async function takeManagerJob({ sql, boss }: TestBench): Promise<HeldTask> {
  const [job] = await boss.fetch<ManagerJob>(MANAGER_QUEUE, { batchSize: 1, ...on(sql) });
  if (job === undefined) throw new Error('no task to expand');
  return { taskId: job.data.taskId, job: { id: job.id, retryCount: job.retryCount } };
}

/** One step of a manager. */
export async function addNext({ sql, boss }: TestBench, held: HeldTask, chunkSize = 10): Promise<ChunkOutcome> {
  return await addChunk(sql, boss, { ...held, chunkSize }, limits);
}

/** A task whose manager has made all results. */
export async function makeExpandedTask(
  bench: TestBench,
  count: number,
  request: FanoutRequest = {},
): Promise<FanoutTask & { resultIds: string[] }> {
  const task = await makeFanoutTask(bench, count, request);
  const held = await takeManagerJob(bench);
  for (;;) {
    const { outcome } = await addNext(bench, held, 1000);
    if (outcome !== 'added') break;
  }
  const rows = await bench.sql<{ id: string }[]>`
    select id from asl_schema.extraction_result where task_id = ${task.taskId} order by id`;
  return { ...task, resultIds: rows.map((row) => row.id) };
}

/** The tally of a task, and what its rows say, in the same words. */
export async function readTally({ sql }: TestBench, taskId: string) {
  const [tally] = await sql`
    select
      added_count as added, expected_count as expected, success_count as success, failed_count as failed,
      cancelled_count as cancelled
    from asl_schema.fanout_tally
    where task_id = ${taskId}`;
  const [rows] = await sql`
    select
      count(*)::int as added,
      count(*) filter (where status = 'completed')::int as success,
      count(*) filter (where status = 'error')::int as failed,
      count(*) filter (where status = 'cancelled')::int as cancelled
    from asl_schema.extraction_result
    where task_id = ${taskId}`;
  return { tally: { ...tally }, rows: { ...rows } };
}

/** Status, reason and counts as the API would show them. */
export async function readState({ sql }: TestBench, taskId: string) {
  const state = await FANOUT.progress(sql, taskId);
  if (state === undefined) throw new Error(`no task ${taskId}`);
  return state;
}

/** Results and live jobs of a task, in order. */
export async function readMade({ sql }: TestBench, taskId: string) {
  const rows = await sql<{ documentId: string; filename: string; status: string; jobs: number }[]>`
    select r.document_id as "documentId", r.filename, r.status,
      (
        select count(*)::int from pgboss.job j
        where j.name = ${CHILD_QUEUE} and j.id = r.job_id and j.data ->> 'resultId' = r.id::text and j.state = 'created'
      ) as jobs
    from asl_schema.extraction_result r
    where r.task_id = ${taskId}
    order by r.id`;
  const [jobs] = await sql<{ live: number }[]>`
    select count(*)::int as live from pgboss.job
    where name = ${CHILD_QUEUE} and data ->> 'taskId' = ${taskId} and state in ('created', 'retry', 'active')`;
  return { rows: [...rows], liveJobs: jobs?.live };
}

/** The jobs that a task's managers have had, oldest first. */
export const managerJobs = async ({ sql }: TestBench, taskId: string) =>
  (await sql`
    select state::text, retry_limit, expire_seconds, singleton_key, length(data::text) < 1000 as small
    from pgboss.job where name = ${MANAGER_QUEUE} and data ->> 'taskId' = ${taskId} order by created_on`) as unknown as {
    state: string;
  }[];
