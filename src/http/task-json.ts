import type { Sql } from '../db.ts';
import { readState } from '../modes.ts';
import type { StatusReason, Task } from '../tasks/task.ts';
import { taskUsage } from '../tasks/task-progress.ts';
import { readPauses } from './pauses.ts';
import { notFound } from './problem.ts';

const REASONS: Record<StatusReason, string> = {
  cancelled_by_user: 'The task was cancelled on request; what had not finished by then was cancelled with it.',
  failure_threshold: 'More results failed than the task allows; what had not finished by then was cancelled.',
  deadline_exceeded: 'The deadline passed before all results had finished; the others ended as errors.',
  expansion_failed:
    'The results of the task could not all be made; those that had not finished were cancelled. A retry goes on.',
  too_many_documents: 'The project has more documents than a task may have; none was extracted.',
  no_progress: 'Nothing had moved for hours and nothing was left that could; what had not finished was cancelled.',
};

/** A task as the API shows it. */
export function toTaskJson(task: Task) {
  return { ...task, statusReason: toReasonJson(task.statusReason) };
}

/** Where a task stands, as the API shows it. @throws Problem 404 */
export async function readProgress(sql: Sql, taskId: string) {
  const found = await readState(sql, taskId);
  if (found === undefined) throw notFound('task', taskId);
  return { taskId, ...found, statusReason: toReasonJson(found.statusReason) };
}

/**
 * The same with what the task has used so far, and with the stages that an open task may be waiting for because they are
 * paused for everybody.
 *
 * @throws Problem 404
 */
export async function readStatus(sql: Sql, taskId: string) {
  const state = await readProgress(sql, taskId);
  const usage = await taskUsage(sql, taskId);
  const paused = state.status === 'processing' ? await readPauses(sql) : [];
  return { ...state, usage, paused };
}

/** Why a task ended otherwise than by its last result: a stable code for programs and a sentence for people. */
function toReasonJson(code: StatusReason | null) {
  return code === null ? null : { code, message: REASONS[code] };
}
