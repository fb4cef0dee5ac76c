import type { PgBoss } from 'pg-boss';
import type { Tx } from '../db.ts';
import { newId } from '../ids.ts';
import { EXTRACT_QUEUE, headPriority, insertJobs, type JobLimits } from '../queue.ts';
import { closeTasks } from './close-tasks.ts';
import { findUnknownDocuments } from './find-unknown-documents.ts';
import type { BeginOutcome, NewTask, TaskMode } from './task-mode.ts';
import { taskProgress } from './task-progress.ts';

/**
 * Scatter: the create makes all results at once, nobody counts while they are worked on, and the aggregator closes what is
 * complete. Workers touch their own rows and no other.
 */
export const SCATTER: TaskMode = {
  name: 'scatter',
  queue: EXTRACT_QUEUE,
  begin: scatterDocuments,
  async count() {},
  close: closeTasks,
  async resume() {
    return false;
  },
  progress: taskProgress,
};

/** Makes a result and a job of each document, in the order of the request. */
async function scatterDocuments(tx: Tx, boss: PgBoss, task: NewTask, limits: JobLimits): Promise<BeginOutcome> {
  const { taskId, projectId } = task;
  const documentIds = task.documentIds ?? [];
  if (documentIds.length === 0) return { outcome: 'begun', results: 0 };
  // One millisecond and a counter for all: the ids of a task sort in the order of its request (RFC 9562, 6.2, method 1).
  const msecs = task.createdAt.getTime();
  const results = documentIds.map((documentId, seq) => ({
    documentId,
    resultId: newId({ msecs, seq }),
    jobId: newId(),
  }));
  // Sent together, and run one after the other: see addChunk.
  const insert = tx`
    insert into asl_schema.extraction_result (task_id, id, document_id, storage_key, filename, media_type, job_id)
    select ${taskId}::uuid, wanted.result_id, d.id, d.storage_key, d.filename, d.media_type, wanted.job_id
    from unnest(
      ${results.map((result) => result.documentId)}::uuid[],
      ${results.map((result) => result.resultId)}::uuid[],
      ${results.map((result) => result.jobId)}::uuid[]
    ) as wanted (document_id, result_id, job_id)
    join asl_schema.document d on d.id = wanted.document_id and d.project_id = ${projectId}`;
  const [inserted, head] = await Promise.all([insert, headPriority(tx, EXTRACT_QUEUE)]);
  if (inserted.count !== documentIds.length) {
    const unknown = await findUnknownDocuments(tx, { projectId, documentIds });
    if (unknown === undefined) throw new Error(`${inserted.count} results for ${documentIds.length} documents`);
    return unknown;
  }

  const jobs = results.map(({ resultId, jobId }, position) => ({ taskId, resultId, jobId, priority: head - position }));
  await insertJobs(boss, tx, EXTRACT_QUEUE, jobs, limits);
  return { outcome: 'begun', results: results.length };
}
