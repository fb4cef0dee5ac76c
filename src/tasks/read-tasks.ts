import type { Sql } from '../db.ts';
import { type Attempt, TASK_STATUSES, type Task, type TaskResult } from './task.ts';

const taskColumns = (sql: Sql) => sql`
  id as "taskId",
  project_id as "projectId",
  template_id as "templateId",
  template_version as "templateVersion",
  mode,
  status,
  status_reason as "statusReason",
  total_count as "totalCount",
  deadline_at as "deadlineAt",
  max_failed_count as "maxFailedCount",
  max_failed_percent as "maxFailedPercent",
  created_at as "createdAt",
  completed_at as "completedAt"`;

/** A result as the API shows it, from a row of `extraction_result`. */
export const resultColumns = (sql: Sql) => sql`
  id as "resultId",
  document_id as "documentId",
  filename,
  status,
  attempt as attempts,
  extracted_data as data,
  case when error_code is not null then jsonb_build_object('code', error_code, 'message', error_message) end as error,
  usage,
  started_at as "startedAt",
  finished_at as "finishedAt",
  updated_at as "updatedAt"`;

/** One task, or undefined. */
export async function getTask(sql: Sql, taskId: string): Promise<Task | undefined> {
  const [task] = await sql<Task[]>`
    select ${taskColumns(sql)}
    from asl_schema.extraction_task
    where id = ${taskId}::uuid`;
  return task;
}

/** Tasks, newest first, by keyset: `after` is the last task id of the page before. */
export async function listTasks(
  sql: Sql,
  options: { projectId?: string | undefined; status?: string | undefined; after?: string | undefined; limit: number },
): Promise<Task[]> {
  const { projectId, status, after, limit } = options;
  return await sql<Task[]>`
    select ${taskColumns(sql)}
    from asl_schema.extraction_task
    where true
      ${projectId === undefined ? sql`` : sql`and project_id = ${projectId}`}
      ${status === undefined ? sql`` : sql`and ${hasStatus(sql, status)}`}
      ${after === undefined ? sql`` : sql`and id < ${after}::uuid`}
    order by id desc
    limit ${limit}`;
}

/**
 * The status as a word of the statement, not as a parameter: a handful of tasks are open, and all others have ended, so the plan
 * that serves any status may walk through all of them for the few.
 */
function hasStatus(sql: Sql, status: string) {
  const known = TASK_STATUSES.find((one) => one === status);
  return known === undefined ? sql`false` : sql`status = ${sql.unsafe(`'${known}'`)}`;
}

/** One task's results in the order of its request, by keyset: `after` is the last result id of the page before. */
export async function listResults(
  sql: Sql,
  options: { taskId: string; status?: string | undefined; after?: string | undefined; limit: number },
): Promise<TaskResult[]> {
  const { taskId, status, after, limit } = options;
  return await sql<TaskResult[]>`
    select ${resultColumns(sql)}
    from asl_schema.extraction_result
    where task_id = ${taskId}::uuid
      ${status === undefined ? sql`` : sql`and status = ${status}`}
      ${after === undefined ? sql`` : sql`and id > ${after}::uuid`}
    order by id
    limit ${limit}`;
}

/** One result with the history of its attempts, oldest first, or undefined. */
export async function getResult(
  sql: Sql,
  key: { taskId: string; resultId: string },
): Promise<(TaskResult & { history: Attempt[] }) | undefined> {
  const [result] = await sql<TaskResult[]>`
    select ${resultColumns(sql)}
    from asl_schema.extraction_result
    where task_id = ${key.taskId}::uuid
      and id = ${key.resultId}::uuid`;
  if (result === undefined) return undefined;
  const history = await sql<Attempt[]>`
    select
      attempt,
      outcome,
      worker,
      started_at as "startedAt",
      finished_at as "finishedAt",
      case when error_code is not null then jsonb_build_object('code', error_code, 'message', error_message) end as error,
      usage
    from asl_schema.extraction_attempt
    where task_id = ${key.taskId}::uuid
      and result_id = ${key.resultId}::uuid
    order by attempt`;
  return { ...result, history };
}
