import { createHash } from 'node:crypto';
import type { PgBoss } from 'pg-boss';
import { v7 as uuidv7 } from 'uuid';
import { inTransaction, type Sql, type Tx } from '../db.ts';
import { MODES } from '../modes.ts';
import type { JobLimits } from '../queue.ts';
import { notifyWake } from '../wake.ts';
import { analyzeAfterInsert } from './analyze.ts';
import { getTask } from './read-tasks.ts';
import { NO_LIMITS, type Task, type TaskLimits, type TaskModeName } from './task.ts';
import type { UnknownDocuments } from './task-mode.ts';

export type CreateTaskRequest = {
  projectId: string;
  templateId: string;
  /** Distinct ids, in the order in which the results shall be listed; null, in fan-out mode: all of the project. */
  documentIds: readonly string[] | null;
  idempotencyKey: string | null;
  /** Default `scatter`. */
  mode?: TaskModeName | undefined;
  limits?: TaskLimits | undefined;
};

export type CreateTaskOutcome =
  | { outcome: 'created'; task: Task }
  /** The key and the request are known: this is the task they made. */
  | { outcome: 'replayed'; task: Task }
  /** The key is known, the request is another: nothing is revealed. */
  | { outcome: 'key_conflict' }
  /** Told of a new task only: one that is known already is known, whatever time it is. */
  | { outcome: 'deadline_passed' }
  | { outcome: 'unknown_template' }
  | UnknownDocuments;

/** Refusals leave through the transaction's door, so that it rolls back what came before. */
class Refused extends Error {
  readonly outcome: CreateTaskOutcome;
  constructor(outcome: CreateTaskOutcome) {
    super(outcome.outcome);
    this.outcome = outcome;
  }
}

/**
 * Creates a task with what it begins with, in scatter mode its results and their jobs: all of it, once, or nothing.
 *
 * Everything is one transaction, so a crash at any step leaves no task that could never close. The idempotency key is
 * decided by the unique index: of any number of equal requests one creates, and the others wait for it and are answered
 * with its task.
 */
export async function createTask(
  sql: Sql,
  boss: PgBoss,
  request: CreateTaskRequest,
  jobLimits: JobLimits,
): Promise<CreateTaskOutcome> {
  const fingerprint = fingerprintOf(request);
  for (;;) {
    try {
      const made = await inTransaction(sql, (tx) => insertTask(tx, boss, request, fingerprint, jobLimits));
      if (made !== undefined) {
        analyzeAfterInsert(sql, boss, MODES[request.mode ?? 'scatter'].queue, made.results);
        return { outcome: 'created', task: await requireTask(sql, made.taskId) };
      }
    } catch (error) {
      if (error instanceof Refused) return error.outcome;
      throw error;
    }
    // The insert met a committed twin, so this later statement sees it, unless it was deleted in between: then try again.
    const earlier = await findByKey(sql, request.idempotencyKey);
    if (earlier === undefined) continue;
    if (earlier.fingerprint !== fingerprint) return { outcome: 'key_conflict' };
    const task = await getTask(sql, earlier.taskId);
    if (task === undefined) continue;
    return { outcome: 'replayed', task };
  }
}

/** The task's id and how many results it has by now, or undefined when its idempotency key is taken. */
async function insertTask(
  tx: Tx,
  boss: PgBoss,
  request: CreateTaskRequest,
  fingerprint: string,
  jobLimits: JobLimits,
): Promise<{ taskId: string; results: number } | undefined> {
  const { projectId, templateId, documentIds, idempotencyKey, mode = 'scatter', limits = NO_LIMITS } = request;
  const [template] = await tx<{ version: number }[]>`
    select version
    from asl_schema.template
    where id = ${templateId}::uuid`;
  if (template === undefined) throw new Refused({ outcome: 'unknown_template' });

  const taskId = uuidv7();
  // Closes the race of equal requests: a second insert of the key waits here until the first commits, then does nothing;
  // if the first rolls back, this one goes on in its place. A null key never conflicts.
  const [task] = await tx<{ createdAt: Date }[]>`
    insert into asl_schema.extraction_task (
      id, project_id, template_id, template_version, mode, idempotency_key, request_fingerprint, total_count,
      deadline_at, max_failed_count, max_failed_percent, status, completed_at
    )
    values (
      ${taskId}::uuid, ${projectId}, ${templateId}::uuid, ${template.version}, ${mode}, ${idempotencyKey},
      ${fingerprint}, ${documentIds?.length ?? null}, ${limits.deadlineAt}, ${limits.maxFailedCount},
      ${limits.maxFailedPercent},
      -- A task without results has nobody who would close it later.
      ${documentIds?.length === 0 ? 'completed' : 'processing'},
      ${documentIds?.length === 0 ? tx`now()` : null}
    )
    on conflict on constraint extraction_task_idempotency_key_key do nothing
    returning created_at as "createdAt"`;
  if (task === undefined) return undefined;
  if (limits.deadlineAt !== null && limits.deadlineAt <= task.createdAt)
    throw new Refused({ outcome: 'deadline_passed' });
  const newTask = { taskId, createdAt: task.createdAt, projectId, documentIds };
  const begun = await MODES[mode].begin(tx, boss, newTask, jobLimits);
  if (begun.outcome !== 'begun') throw new Refused(begun);
  // Delivered at the commit, so no worker looks before the jobs are there.
  await notifyWake(tx, 'asl_jobs');
  return { taskId, results: begun.results };
}

async function findByKey(
  sql: Sql,
  idempotencyKey: string | null,
): Promise<{ taskId: string; fingerprint: string } | undefined> {
  const [earlier] = await sql<{ taskId: string; fingerprint: string }[]>`
    select id as "taskId", request_fingerprint as fingerprint
    from asl_schema.extraction_task
    where idempotency_key = ${idempotencyKey}`;
  return earlier;
}

async function requireTask(sql: Sql, taskId: string): Promise<Task> {
  const task = await getTask(sql, taskId);
  if (task === undefined) throw new Error(`task ${taskId} was deleted right after its creation`);
  return task;
}

/** SHA-256 of what was asked for. The order of the documents counts: it is the order of the results. */
function fingerprintOf(request: CreateTaskRequest): string {
  const { mode = 'scatter', projectId, templateId, documentIds, limits = NO_LIMITS } = request;
  return createHash('sha256')
    .update(JSON.stringify([mode, projectId, templateId, documentIds, limits]))
    .digest('hex');
}
