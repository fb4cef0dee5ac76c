import type { PgBoss } from 'pg-boss';
import type { Tx } from '../db.ts';
import type { JobLimits } from '../queue.ts';
import { findUnknownDocuments } from '../tasks/find-unknown-documents.ts';
import type { BeginOutcome, NewTask, TaskMode } from '../tasks/task-mode.ts';
import { CHILDREN, closeComplete } from './count-children.ts';
import { fanoutProgress } from './fanout-progress.ts';
import { insertManagerJob } from './manager-queue.ts';
import { sweepLostManagers } from './sweep-lost-managers.ts';

/**
 * Fan-out: the create leaves a job for a manager, which makes the results while others are worked on already. Each settle
 * counts in the tally of its task, and the last one closes the task.
 */
export const FANOUT: TaskMode = {
  ...CHILDREN,
  name: 'fanout',
  begin: leaveToManager,
  close: closeComplete,
  sweep: sweepLostManagers,
  resume: resumeExpansion,
  progress: fanoutProgress,
};

/** The list is kept as it is: what becomes of its documents until a manager comes to them is seen then. */
async function leaveToManager(tx: Tx, boss: PgBoss, task: NewTask, limits: JobLimits): Promise<BeginOutcome> {
  const { taskId, projectId, documentIds } = task;
  const looked = documentIds === null ? undefined : findUnknownDocuments(tx, { projectId, documentIds });
  const tally = tx`
    insert into asl_schema.fanout_tally (task_id, expected_count)
    values (${taskId}::uuid, ${documentIds?.length === 0 ? 0 : null}::int)`;
  const expansion = tx`
    insert into asl_schema.fanout_expansion (task_id, document_ids)
    values (${taskId}::uuid, ${documentIds as string[] | null}::uuid[])`;
  const manager = documentIds?.length === 0 ? undefined : insertManagerJob(boss, tx, taskId, limits);
  const [unknown] = await Promise.all([looked, tally, expansion, manager]);
  // What was written beside is rolled back with the refusal.
  if (unknown !== undefined) return unknown;
  return { outcome: 'begun', results: 0 };
}

/** A task that ended before its results were all made goes on with them. */
async function resumeExpansion(tx: Tx, boss: PgBoss, taskId: string, limits: JobLimits): Promise<boolean> {
  const unfinished = await tx`
    select 1
    from asl_schema.extraction_task t
    join asl_schema.fanout_tally y on y.task_id = t.id
    where t.id = ${taskId}::uuid
      and t.status <> 'processing'
      and y.expected_count is null`;
  if (unfinished.length === 0) return false;
  // It takes its place in line anew.
  await tx`
    update asl_schema.fanout_expansion
    set priority_base = null
    where task_id = ${taskId}::uuid`;
  await insertManagerJob(boss, tx, taskId, limits);
  return true;
}
