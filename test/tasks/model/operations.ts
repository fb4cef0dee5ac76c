import assert from 'node:assert/strict';
import { sweepFanoutTasks } from '../../../src/fanout/sweep-fanout.ts';
import { MANAGER_QUEUE, on, type ResultQueue, touchJobs } from '../../../src/queue.ts';
import { cancelTask } from '../../../src/tasks/cancel-task.ts';
import { checkClaims } from '../../../src/tasks/check-claims.ts';
import { createTask } from '../../../src/tasks/create-task.ts';
import { deleteExpiredTasks, deleteTask } from '../../../src/tasks/delete-task.ts';
import { retryTask } from '../../../src/tasks/retry-task.ts';
import type { Ending } from '../../../src/tasks/settlement.ts';
import { sweepTasks } from '../../../src/tasks/sweep-tasks.ts';
import type { TaskLimits } from '../../../src/tasks/task.ts';
import { fetchDeliveries, lapseHeartbeat, TRIAL_TEMPLATE_ID } from '../../support/fixtures.ts';
import { jobLimits, PROJECT, projectOf, STALE_AFTER_MS } from './limits.ts';
import { expand, giveUp, rememberResults } from './manager-operations.ts';
import { chooseDeliveries, claim, refusal, settle } from './worker-operations.ts';
import { type Event, type Ground, pick, type Request, type WorkerName } from './world.ts';

/** One of the operations that can be at work at the same time; `which` chooses among what there is when it begins. */
export type Operation =
  | ({ do: 'create' } & Request)
  /** A manager's, in fan-out mode: with a task that it takes from the queue, or with one that it was once given. */
  | { do: 'expand'; worker: WorkerName; takes: boolean; which: number }
  | { do: 'sweep' }
  | { do: 'giveUp'; worker: WorkerName; which: number }
  | { do: 'take' | 'fetch'; worker: WorkerName; count: number }
  | { do: 'claim'; worker: WorkerName; which: number; count: number }
  | { do: 'settle'; worker: WorkerName; which: number; kind: Ending['kind'] }
  | { do: 'lapse' | 'destroy' | 'cancelJob'; which: number }
  | TaskOperation
  | { do: 'expire'; maxResults: number }
  | { do: 'round'; limit: number }
  | { do: 'check' | 'beat'; worker: WorkerName }
  /** The hand of the test, which only works alone: time passes for a running result, for a closed task, or for a deadline. */
  | { do: 'backdate' | 'age' | 'overdue'; which: number };

type TaskOperation =
  | { do: 'cancel' | 'delete' | 'progress'; which: number }
  | { do: 'retry'; which: number; results: number[] | null; limits: TaskLimits };

/** Does it, keeps what the run must remember, and says what it was answered. Nothing happens if there is nothing to choose. */
export async function perform(ground: Ground, operation: Operation): Promise<Event[]> {
  const { sql, boss, bench, mode, world } = ground;
  switch (operation.do) {
    case 'create':
      return [await create(ground, operation)];
    case 'expand':
      return await expand(ground, operation);
    case 'sweep':
      return [{ event: 'sweep', counts: await sweepFanoutTasks(sql, boss, { idleMs: STALE_AFTER_MS }) }];
    case 'giveUp':
      return await giveUp(ground, operation);
    case 'take': {
      const fetched = await fetchDeliveries({ ...bench, sql }, operation.count);
      const events = await claim(ground, operation.worker, fetched, true);
      // Only now: a delivery is in one hand, and nobody else claims it meanwhile.
      world.workers[operation.worker].fetched.push(...fetched);
      return events;
    }
    case 'fetch':
      world.workers[operation.worker].fetched.push(...(await fetchDeliveries({ ...bench, sql }, operation.count)));
      return [];
    case 'claim':
      return await claim(ground, operation.worker, chooseDeliveries(ground, operation), false);
    case 'settle':
      return await settle(ground, operation);
    case 'check': {
      const claims = world.workers[operation.worker].held;
      const holding = await checkClaims(
        sql,
        claims.map((held) => held.claim),
      );
      return [{ event: 'check', claims: [...claims], holding }];
    }
    case 'beat': {
      const { held } = world.workers[operation.worker];
      const jobs = held.map(({ job }) => job);
      return [{ event: 'beat', held: [...held], alive: await touchJobs(boss, sql, mode.queue, jobs) }];
    }
    case 'lapse': {
      const job = await chooseJob(ground, operation.which, ['active']);
      if (job === undefined) return [];
      await lapseHeartbeat({ ...bench, mode: { ...mode, queue: job.queue } }, job.id);
      return [{ event: 'lapse', jobId: job.id }];
    }
    case 'destroy':
    case 'cancelJob': {
      const job = await chooseJob(ground, operation.which, ['created', 'retry', 'active']);
      if (job === undefined) return [];
      world.destroyed.add(job.id);
      if (job.taskId !== null) world.destroyedManagers.add(job.taskId);
      if (operation.do === 'destroy') await boss.deleteJob(job.queue, job.id, on(sql));
      else await boss.cancel(job.queue, job.id, on(sql));
      return [{ event: 'destroy', jobId: job.id }];
    }
    case 'backdate': {
      const rows = await sql<{ id: string }[]>`
        select id from asl_schema.extraction_result where status = 'extracting' order by id`;
      const row = pick(rows, operation.which);
      if (row === undefined) return [];
      await sql`update asl_schema.extraction_result set updated_at = now() - interval '1 hour' where id = ${row.id}`;
      return [{ event: 'backdate', resultId: row.id }];
    }
    case 'age': {
      const taskId = pick(world.taskIds, operation.which);
      if (taskId === undefined) return [];
      await sql`
        update asl_schema.extraction_task
        set completed_at = completed_at - interval '1 hour'
        where id = ${taskId} and status <> 'processing'`;
      return [{ event: 'age', taskId }];
    }
    case 'overdue': {
      const taskId = pick(world.taskIds, operation.which);
      if (taskId === undefined) return [];
      await sql`
        update asl_schema.extraction_task
        set deadline_at = now() - interval '1 second'
        where id = ${taskId} and status = 'processing'`;
      return [];
    }
    case 'round': {
      const { limit } = operation;
      const options = { mode, intervalMs: 0, staleAfterMs: STALE_AFTER_MS, limit, sweeper: 'test' };
      return [{ event: 'round', limit, outcome: await sweepTasks(sql, boss, options) }];
    }
    case 'expire': {
      const { maxResults } = operation;
      const deleted = await deleteExpiredTasks(sql, { retentionMs: STALE_AFTER_MS, maxResults });
      return [{ event: 'expire', maxResults, deleted }];
    }
    case 'cancel':
    case 'delete':
    case 'retry':
    case 'progress': {
      const taskId = pick(world.taskIds, operation.which);
      return taskId === undefined ? [] : await onTask(ground, operation, taskId);
    }
  }
}

async function onTask({ sql, boss, mode, world }: Ground, operation: TaskOperation, taskId: string): Promise<Event[]> {
  if (operation.do === 'cancel') return [{ event: 'cancel', taskId, outcome: await cancelTask(sql, boss, taskId) }];
  if (operation.do === 'delete') return [{ event: 'delete', taskId, outcome: await deleteTask(sql, taskId) }];
  if (operation.do === 'retry') {
    const { results, limits: newLimits } = operation;
    const resultIds = results?.flatMap((which) => pick(world.resultIds, which) ?? []);
    const request = { taskId, resultIds: resultIds && [...new Set(resultIds)], limits: newLimits };
    const outcome = await retryTask(sql, boss, request, jobLimits).catch((error) => ({ outcome: refusal(error) }));
    return [{ event: 'retry', taskId, resultIds: request.resultIds, limits: newLimits, outcome }];
  }
  const state = await mode.progress(sql, taskId);
  if (state === undefined) return [];
  const { total, success, failed, cancelled, pending, extracting, percent } = state.progress;
  assert.equal(success + failed + cancelled + pending + extracting, total, 'counts add up at every moment');
  const ended = pending + extracting === 0 && state.expanding !== true;
  assert.equal(percent === 100, ended, '100 % is said of what has ended, and of nothing else');
  return [];
}

async function create(ground: Ground, request: Request): Promise<Event> {
  const { sql, boss, mode, documentIds, world } = ground;
  const { key: idempotencyKey, documents, limits: taskLimits, whole = false } = request;
  const made = await createTask(
    sql,
    boss,
    {
      mode: mode.name,
      projectId: whole ? projectOf(documents) : PROJECT,
      templateId: TRIAL_TEMPLATE_ID,
      documentIds: whole ? null : documentIds.slice(0, documents),
      idempotencyKey,
      limits: taskLimits,
    },
    jobLimits,
  );
  const taskId = 'task' in made ? made.task.taskId : undefined;
  if (taskId !== undefined && made.outcome === 'created') {
    world.taskIds.push(taskId);
    world.requests.set(taskId, request);
    await rememberResults(ground, taskId);
  }
  return { event: 'create', request, outcome: made.outcome, taskId };
}

/** `taskId` of a manager's job; its queue is one of results to whom only its name matters. */
type ChosenJob = { id: string; queue: ResultQueue; taskId: string | null };

async function chooseJob({ sql, mode }: Ground, which: number, states: string[]): Promise<ChosenJob | undefined> {
  const jobs = await sql<ChosenJob[]>`
    select id, name as queue, case when name = ${MANAGER_QUEUE} then data ->> 'taskId' end as "taskId"
    from pgboss.job
    where name in (${mode.queue}, ${MANAGER_QUEUE}) and state::text = any(${states})
    order by created_on, id`;
  return pick(jobs, which);
}
