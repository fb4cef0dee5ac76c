import type { Sql, Tx } from '../db.ts';
import type { StatusReason, TaskStatus } from '../tasks/task.ts';
import type { TaskState } from '../tasks/task-mode.ts';
import { toProgress } from '../tasks/task-progress.ts';

type Row = {
  status: TaskStatus;
  statusReason: StatusReason | null;
  total: number;
  expanding: boolean;
  success: number;
  failed: number;
  extracting: number;
  cancelled: number;
};

/**
 * Where a fan-out task stands, from its counters: only what is being extracted at this moment is counted, which is as many
 * rows as there are slots. One statement, one snapshot, and each settle changes its result and the counter together: in every
 * answer pending + extracting + success + failed + cancelled = total.
 *
 * A document whose result has not been made yet is pending, or, in a task that has ended without it, cancelled.
 */
export async function fanoutProgress(sql: Sql | Tx, taskId: string): Promise<TaskState | undefined> {
  const [row] = await sql<Row[]>`
    select
      t.status,
      t.status_reason as "statusReason",
      coalesce(t.total_count, y.added_count) as total,
      t.status = 'processing' and y.expected_count is null as expanding,
      y.success_count as success,
      y.failed_count as failed,
      y.cancelled_count as cancelled,
      (
        select count(*)::int
        from asl_schema.extraction_result r
        where r.task_id = t.id
          and r.status = 'extracting'
      ) as extracting
    from asl_schema.extraction_task t
    join asl_schema.fanout_tally y on y.task_id = t.id
    where t.id = ${taskId}::uuid`;
  if (row === undefined) return undefined;
  const { status, statusReason, expanding, total, success, failed, extracting } = row;
  const left = total - success - failed - extracting;
  const [pending, cancelled] = status === 'processing' ? [left - row.cancelled, row.cancelled] : [0, left];
  const progress = toProgress(total, { success, failed, cancelled, pending, extracting });
  // All that there is so far may have ended, and yet not all.
  if (expanding) progress.percent = total === 0 ? 0 : Math.min(progress.percent, 99);
  return { status, statusReason, expanding, progress };
}
