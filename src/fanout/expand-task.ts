import type { PgBoss } from 'pg-boss';
import { inTransaction, type Sql, type Tx } from '../db.ts';
import { announceTasks } from '../events/announce.ts';
import { newId } from '../ids.ts';
import { CHILD_QUEUE, type HeldJob, headPriority, insertJobs, type Job, type JobLimits } from '../queue.ts';
import { MAX_DOCUMENTS } from '../tasks/task.ts';
import { notifyWake } from '../wake.ts';
import { closeTask } from './count-children.ts';
import { failTask } from './fail-task.ts';
import { completeManagerJob } from './manager-queue.ts';
import { type ChunkDocument, countProject, readChunk } from './read-chunk.ts';

/**
 * - `added`     so many results were made, and there are more to make
 * - `expanded`  the last ones were made
 * - `ended`     there is nothing to do: the task has its results already, or has ended, or could not have them
 */
export type ChunkOutcome = { outcome: 'added' | 'expanded'; results: number } | { outcome: 'ended' };

export type ChunkOptions = {
  taskId: string;
  /** The delivery that is completed when there is nothing left to do. */
  job: HeldJob;
  /** Documents of one transaction. */
  chunkSize: number;
};

/**
 * Makes the next results of a task, with their jobs: the manager's one step.
 *
 * Results, jobs, the counter and how far it has come are one transaction, so a manager that is killed at any moment leaves
 * whole chunks, and the next one goes on behind them. The task's row is locked first: two managers at work on one task, as
 * after a long silence of the first, take turns, and neither makes what the other has made.
 *
 * Statements that do not need each other's answer are sent together: on the one connection of the transaction they still run one
 * after the other, but nobody waits for the wire in between.
 *
 * Children may end, all of them, while more are made: how many there will be is written with the last chunk, and only then can
 * the counter be full. If it is full in that moment, or there were no documents at all, the manager closes the task itself.
 */
export async function addChunk(
  sql: Sql,
  boss: PgBoss,
  options: ChunkOptions,
  limits: JobLimits,
): Promise<ChunkOutcome> {
  const { taskId, job, chunkSize } = options;
  return await inTransaction(sql, async (tx): Promise<ChunkOutcome> => {
    const task = await lockTask(tx, taskId);
    if (task === undefined) {
      await completeManagerJob(boss, tx, job);
      return { outcome: 'ended' };
    }
    if (!task.listed && !task.begun && (await countProject(tx, task, MAX_DOCUMENTS)) > MAX_DOCUMENTS) {
      await failTask(tx, boss, { taskId, reason: 'too_many_documents' });
      await completeManagerJob(boss, tx, job);
      return { outcome: 'ended' };
    }
    const [{ documents, isLast }, priorityBase] = await Promise.all([
      readChunk(tx, task, chunkSize),
      task.priorityBase ?? headPriority(tx, CHILD_QUEUE).then((head) => head + task.nextPosition),
    ]);
    const failed = await insertResults(tx, boss, { ...task, priorityBase }, documents, limits);
    const noted = tx`
      update asl_schema.fanout_expansion
      set documents_until = coalesce(documents_until, ${task.listed ? null : tx`now()`}),
          next_position = next_position + ${documents.length},
          last_document_id = coalesce(${documents.at(-1)?.documentId ?? null}::uuid, last_document_id),
          priority_base = ${priorityBase}
      where task_id = ${taskId}::uuid`;
    const completed = isLast ? completeManagerJob(boss, tx, job) : undefined;
    await Promise.all([noted, completed, notifyWake(tx, 'asl_jobs'), announceTasks(tx, [taskId])]);
    await countAdded(tx, task, { added: documents.length, failed, isLast });
    return { outcome: isLast ? 'expanded' : 'added', results: documents.length };
  });
}

export type Expansion = {
  taskId: string;
  projectId: string;
  createdAt: Date;
  /** By its request, not by its project. */
  listed: boolean;
  /** Of a project: which documents are in it has been settled. */
  begun: boolean;
  /** Its deadline has passed: nothing of it is begun any more. */
  overdue: boolean;
  nextPosition: number;
  lastDocumentId: string | null;
  priorityBase: number | null;
};

/** The task and how far it has come, or undefined when nothing is left to make. */
async function lockTask(tx: Tx, taskId: string): Promise<Expansion | undefined> {
  // Whatever its status: a retry at this moment counts on this manager while its job is alive, and must not see it end in
  // between because the task was closed a moment ago.
  const lock = tx<{ open: boolean }[]>`
    select status = 'processing' as open
    from asl_schema.extraction_task
    where id = ${taskId}::uuid
    for update`;
  // A statement of its own, so that it sees what a manager has committed for which the one above has waited.
  const read = tx<Expansion[]>`
    select
      t.id as "taskId",
      t.project_id as "projectId",
      t.created_at as "createdAt",
      e.document_ids is not null as listed,
      coalesce(t.deadline_at <= now(), false) as overdue,
      e.documents_until is not null as begun,
      e.next_position as "nextPosition",
      e.last_document_id as "lastDocumentId",
      e.priority_base as "priorityBase"
    from asl_schema.extraction_task t
    join asl_schema.fanout_tally y on y.task_id = t.id
    join asl_schema.fanout_expansion e on e.task_id = t.id
    where t.id = ${taskId}::uuid
      and y.expected_count is null`;
  const [[task], [expansion]] = await Promise.all([lock, read]);
  return task?.open ? expansion : undefined;
}

/**
 * A result of each document, in order, and a job of each that is there. A document that was deleted since the request is an
 * error of its own result, and so is any when the deadline has passed. What a result needs of its document is copied now, so
 * that what is renamed later does not matter. Answers how many are errors.
 */
async function insertResults(
  tx: Tx,
  boss: PgBoss,
  task: Expansion & { priorityBase: number },
  documents: readonly ChunkDocument[],
  limits: JobLimits,
): Promise<number> {
  if (documents.length === 0) return 0;
  const { taskId, nextPosition, priorityBase, overdue } = task;
  const msecs = task.createdAt.getTime();
  const results = documents.map((document, i) => ({
    ...document,
    // The ids sort in the order of the documents, whichever manager makes them.
    resultId: newId({ msecs, seq: nextPosition + i }),
    jobId: newId(),
    position: nextPosition + i,
    ...(document.storageKey === null ? DELETED : overdue ? OVERDUE : NO_ERROR),
  }));
  const inserted = tx`
    insert into asl_schema.extraction_result (
      task_id, id, document_id, storage_key, filename, media_type, job_id, status, error_code, error_message, finished_at
    )
    select
      ${taskId}::uuid, r."resultId", r."documentId",
      coalesce(r."storageKey", 'deleted'), coalesce(r.filename, ''), coalesce(r."mediaType", ''), r."jobId",
      case when r.code is null then 'pending' else 'error' end, r.code, r.message,
      case when r.code is not null then now() end
    from jsonb_to_recordset(${tx.json(results)}) as r (
      "resultId" uuid, "documentId" uuid, "storageKey" text, filename text, "mediaType" text, "jobId" uuid, code text, message text
    )`;
  const jobs = results.flatMap(({ resultId, jobId, code, position }): Job[] =>
    code === null ? [{ taskId, resultId, jobId, priority: priorityBase - position }] : [],
  );
  await Promise.all([inserted, insertJobs(boss, tx, CHILD_QUEUE, jobs, limits)]);
  return results.length - jobs.length;
}

const NO_ERROR = { code: null, message: null };
const DELETED = { code: 'document_missing', message: 'The document was deleted before its result was made.' };
const OVERDUE = { code: 'deadline_exceeded', message: 'The deadline of the task passed before this result was made.' };

/** Last before the commit, like every count. Closes the task if there is nothing left to wait for. */
async function countAdded(
  tx: Tx,
  { taskId, overdue }: Expansion,
  { added, failed, isLast }: { added: number; failed: number; isLast: boolean },
): Promise<void> {
  if (isLast || overdue) {
    await tx`
      update asl_schema.extraction_task
      set total_count = case
            when ${isLast} then coalesce(
              total_count,
              (select added_count from asl_schema.fanout_tally where task_id = ${taskId}::uuid) + ${added}
            )
            else total_count
          end,
          status_reason = case when ${overdue} then 'deadline_exceeded' else status_reason end
      where id = ${taskId}::uuid`;
  }
  const [tally] = await tx<{ complete: boolean | null }[]>`
    update asl_schema.fanout_tally
    set added_count = added_count + ${added},
        failed_count = failed_count + ${failed},
        expected_count = case when ${isLast} then added_count + ${added} end,
        updated_at = now()
    where task_id = ${taskId}::uuid
    returning success_count + failed_count + cancelled_count = expected_count as complete`;
  if (tally?.complete) await closeTask(tx, taskId);
}
