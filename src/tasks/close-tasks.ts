import type postgres from 'postgres';
import type { Sql, Tx } from '../db.ts';

type Fragment = postgres.PendingQuery<postgres.Row[]>;

/**
 * Closes open tasks that are complete; each is closed once, whoever looks how often. Answers their ids. Must run inside a
 * transaction.
 *
 * Two statements, on purpose. The first finds the candidates and takes their rows, the second looks again: had a retry put
 * results back between the look and the lock, the second, with its snapshot from after the lock, sees them. In one statement
 * the look would be from before it. The time is not now(), when the transaction began: it may have waited for others that ended
 * results since.
 *
 * @param options.complete what is true of a complete task `t`
 */
export async function closeWhere(tx: Sql | Tx, options: { complete: Fragment; limit: number }): Promise<string[]> {
  const { complete, limit } = options;
  const found = await tx<{ id: string }[]>`
    select t.id
    from asl_schema.extraction_task t
    where t.status = 'processing'
      and ${complete}
    order by t.id
    limit ${limit}
    for update of t skip locked`;
  if (found.length === 0) return [];
  const closed = await tx<{ id: string }[]>`
    update asl_schema.extraction_task t
    set status = 'completed',
        completed_at = clock_timestamp()
    where t.id = any(${found.map((task) => task.id)}::uuid[])
      and t.status = 'processing'
      and ${complete}
    returning t.id`;
  return closed.map((task) => task.id);
}

/**
 * Closes the open scatter tasks none of whose results is `pending` or `extracting`. Looking for one open result a task rides
 * on (task_id, status).
 */
export async function closeTasks(tx: Sql | Tx, { limit }: { limit: number }): Promise<string[]> {
  const complete = tx`t.mode = 'scatter'
      and not exists (
        select 1
        from asl_schema.extraction_result r
        where r.task_id = t.id
          and r.status in ('pending', 'extracting')
      )`;
  return await closeWhere(tx, { complete, limit });
}
