import type { Sql, Tx } from '../db.ts';
import type { Progress, ResultStatus, StatusReason, TaskStatus } from './task.ts';
import type { TaskState } from './task-mode.ts';

type Group = {
  taskStatus: TaskStatus;
  statusReason: StatusReason | null;
  total: number;
  status: ResultStatus | null;
  count: number;
};

/**
 * Where a scatter task stands: its status and the exact counts of its results, from one statement and so from one snapshot. In every
 * answer pending + extracting + success + failed + cancelled = total.
 *
 * Rides on (task_id, status): an index-only scan over one task's rows, whatever else the table holds.
 */
export async function taskProgress(sql: Sql | Tx, taskId: string): Promise<TaskState | undefined> {
  const groups = await sql<Group[]>`
    select
      t.status as "taskStatus",
      t.status_reason as "statusReason",
      t.total_count as total,
      r.status,
      count(r.status)::int as count
    from asl_schema.extraction_task t
    left join asl_schema.extraction_result r on r.task_id = t.id
    where t.id = ${taskId}::uuid
      and t.mode = 'scatter'
    group by t.id, r.status`;
  const [first] = groups;
  if (first === undefined) return undefined;
  const count = (status: ResultStatus): number => groups.find((group) => group.status === status)?.count ?? 0;
  return {
    status: first.taskStatus,
    statusReason: first.statusReason,
    progress: toProgress(first.total, {
      success: count('completed'),
      failed: count('error'),
      cancelled: count('cancelled'),
      pending: count('pending'),
      extracting: count('extracting'),
    }),
  };
}

/**
 * What a task's attempts have used so far, summed by what its engine counts: pages, tokens, and the cost where prices are
 * known. What failed is in it. Rides on the primary key, over one task's rows.
 */
export async function taskUsage(sql: Sql | Tx, taskId: string): Promise<Record<string, number>> {
  const totals = await sql<{ key: string; total: number }[]>`
    select used.key, sum(used.value::numeric)::float8 as total
    from asl_schema.extraction_result r
    cross join lateral jsonb_each_text(r.usage) used
    where r.task_id = ${taskId}::uuid
      and r.usage is not null
    group by used.key
    order by used.key`;
  return Object.fromEntries(totals.map(({ key, total }) => [key, total]));
}

/** Adds total and percent: 100 for an empty task, rounded down otherwise, so that 100 is never said before the last one. */
export function toProgress(total: number, counts: Omit<Progress, 'total' | 'percent'>): Progress {
  const terminal = counts.success + counts.failed + counts.cancelled;
  const percent = total === 0 ? 100 : Math.floor((terminal / total) * 100);
  return {
    total,
    success: counts.success,
    failed: counts.failed,
    percent,
    pending: counts.pending,
    extracting: counts.extracting,
    cancelled: counts.cancelled,
  };
}
