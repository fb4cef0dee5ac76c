import { inTransaction, type Sql, type Tx } from '../db.ts';

/** `open`: a task is not deleted while it is open; cancel it first. */
export type DeleteOutcome = 'deleted' | 'open' | 'unknown';

/** Deletes a closed task with its results and their history. Its idempotency key is free again. Documents stay. */
export async function deleteTask(sql: Sql, taskId: string): Promise<DeleteOutcome> {
  return await inTransaction(sql, async (tx) => {
    const [task] = await tx<{ open: boolean }[]>`
      select status = 'processing' as open
      from asl_schema.extraction_task
      where id = ${taskId}::uuid
      for update`;
    if (task === undefined) return 'unknown';
    if (task.open) return 'open';
    await deleteTasks(tx, [taskId]);
    return 'deleted';
  });
}

/**
 * Deletes closed tasks that ended longer ago than the retention allows, oldest first; an open task is never taken, however
 * old. Returns how many.
 *
 * A call takes as many tasks as have `maxResults` results together, but one at least, so its transaction is bounded by the
 * largest task there may be; the caller calls again while there is something to do. Rides on the index of completed_at.
 */
export async function deleteExpiredTasks(
  sql: Sql,
  options: { retentionMs: number; maxResults: number },
): Promise<number> {
  return await inTransaction(sql, async (tx) => {
    const expired = await tx<{ id: string; results: number }[]>`
      select id, coalesce(total_count, 0) as results
      from asl_schema.extraction_task
      where completed_at < now() - make_interval(secs => ${options.retentionMs / 1000})
        and status <> 'processing'
      order by completed_at
      limit 1000
      for update skip locked`;
    let results = 0;
    const chunk = expired.filter((task, i) => {
      results += task.results;
      return i === 0 || results <= options.maxResults;
    });
    if (chunk.length === 0) return 0;
    await deleteTasks(
      tx,
      chunk.map((task) => task.id),
    );
    return chunk.length;
  });
}

/** By the leading column of their keys, the children first: the cascade would go through 100,000 results one by one. */
async function deleteTasks(tx: Tx, taskIds: string[]): Promise<void> {
  await tx`delete from asl_schema.extraction_attempt where task_id = any(${taskIds}::uuid[])`;
  await tx`delete from asl_schema.extraction_result where task_id = any(${taskIds}::uuid[])`;
  await tx`delete from asl_schema.extraction_task where id = any(${taskIds}::uuid[])`;
}
