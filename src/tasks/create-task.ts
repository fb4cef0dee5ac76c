import { createHash } from 'node:crypto';
import type { PgBoss } from 'pg-boss';
import { v7 as uuidv7 } from 'uuid';
import { inTransaction, type Sql, type Tx } from '../db.ts';
import { headPriority, insertJobs, type JobLimits } from '../queue.ts';
import { notifyWake } from '../wake.ts';
import { analyzeAfterInsert } from './analyze.ts';
import { getTask } from './read-tasks.ts';
import { NO_LIMITS, type Task, type TaskLimits } from './task.ts';

export type CreateTaskRequest = {
  projectId: string;
  templateId: string;
  /** Distinct ids, in the order in which the results shall be listed. */
  documentIds: readonly string[];
  idempotencyKey: string | null;
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
  /** `documentIds` names at most twenty of the `count` that are not in the project. */
  | { outcome: 'unknown_documents'; count: number; documentIds: string[] };

/** Refusals leave through the transaction's door, so that it rolls back what came before. */
class Refused extends Error {
  readonly outcome: CreateTaskOutcome;
  constructor(outcome: CreateTaskOutcome) {
    super(outcome.outcome);
    this.outcome = outcome;
  }
}

/**
 * Creates a task with its results and their jobs: all of it, once, or nothing.
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
      const taskId = await inTransaction(sql, (tx) => insertTask(tx, boss, request, fingerprint, jobLimits));
      if (taskId !== undefined) {
        analyzeAfterInsert(sql, boss, request.documentIds.length);
        return { outcome: 'created', task: await requireTask(sql, taskId) };
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

/** The task's id, or undefined when its idempotency key is taken. */
async function insertTask(
  tx: Tx,
  boss: PgBoss,
  request: CreateTaskRequest,
  fingerprint: string,
  jobLimits: JobLimits,
): Promise<string | undefined> {
  const { projectId, templateId, documentIds, idempotencyKey, limits = NO_LIMITS } = request;
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
      ${taskId}::uuid, ${projectId}, ${templateId}::uuid, ${template.version}, 'scatter', ${idempotencyKey},
      ${fingerprint}, ${documentIds.length}, ${limits.deadlineAt}, ${limits.maxFailedCount}, ${limits.maxFailedPercent},
      -- A task without results has nobody who would close it later.
      ${documentIds.length === 0 ? 'completed' : 'processing'},
      ${documentIds.length === 0 ? tx`now()` : null}
    )
    on conflict on constraint extraction_task_idempotency_key_key do nothing
    returning created_at as "createdAt"`;
  if (task === undefined) return undefined;
  if (limits.deadlineAt !== null && limits.deadlineAt <= task.createdAt)
    throw new Refused({ outcome: 'deadline_passed' });
  if (documentIds.length === 0) return taskId;

  // One millisecond and a counter for all: the ids of a task sort in the order of its request (RFC 9562, 6.2, method 1).
  const msecs = task.createdAt.getTime();
  const results = documentIds.map((documentId, seq) => ({
    documentId,
    resultId: uuidv7({ msecs, seq }),
    jobId: uuidv7(),
  }));
  const inserted = await tx`
    insert into asl_schema.extraction_result (task_id, id, document_id, storage_key, filename, media_type, job_id)
    select ${taskId}::uuid, wanted.result_id, d.id, d.storage_key, d.filename, d.media_type, wanted.job_id
    from unnest(
      ${results.map((result) => result.documentId)}::uuid[],
      ${results.map((result) => result.resultId)}::uuid[],
      ${results.map((result) => result.jobId)}::uuid[]
    ) as wanted (document_id, result_id, job_id)
    join asl_schema.document d on d.id = wanted.document_id and d.project_id = ${projectId}`;
  if (inserted.count !== documentIds.length) throw new Refused(await nameUnknown(tx, request));

  const head = await headPriority(tx);
  await insertJobs(
    boss,
    tx,
    results.map(({ resultId, jobId }, position) => ({ taskId, resultId, jobId, priority: head - position })),
    jobLimits,
  );
  // Delivered at the commit, so no worker looks before the jobs are there.
  await notifyWake(tx, 'asl_jobs');
  return taskId;
}

/** Which of the documents are not in the project, in the order of the request. */
async function nameUnknown(tx: Tx, request: CreateTaskRequest): Promise<CreateTaskOutcome> {
  const unknown = await tx<{ documentId: string; count: number }[]>`
    select wanted.document_id as "documentId", count(*) over ()::int as count
    from unnest(${request.documentIds as string[]}::uuid[]) with ordinality as wanted (document_id, position)
    where not exists (
      select 1
      from asl_schema.document d
      where d.id = wanted.document_id and d.project_id = ${request.projectId}
    )
    order by wanted.position
    limit 20`;
  return {
    outcome: 'unknown_documents',
    count: unknown[0]?.count ?? 0,
    documentIds: unknown.map((row) => row.documentId),
  };
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
  const { projectId, templateId, documentIds, limits = NO_LIMITS } = request;
  return createHash('sha256')
    .update(JSON.stringify(['scatter', projectId, templateId, documentIds, limits]))
    .digest('hex');
}
