import type { Sql, Tx } from '../db.ts';

/**
 * Closes the open scatter tasks none of whose results is `pending` or `extracting`; each is closed once, whoever looks how
 * often. Answers their ids. Must run inside a transaction.
 *
 * Two statements, on purpose. The first finds the candidates and takes their rows, the second looks again at the results:
 * had a retry put results back between the look and the lock, the second, with its snapshot from after the lock, sees them.
 * In one statement the look would be from before it. Looking for one open result a task rides on (task_id, status).
 */
export async function closeTasks(tx: Sql | Tx, options: { limit: number }): Promise<string[]> {
  const complete = await tx<{ id: string }[]>`
    select t.id
    from asl_schema.extraction_task t
    where t.status = 'processing'
      and t.mode = 'scatter'
      and ${noneOpen(tx)}
    order by t.id
    limit ${options.limit}
    for update of t skip locked`;
  if (complete.length === 0) return [];
  const closed = await tx<{ id: string }[]>`
    update asl_schema.extraction_task t
    set status = 'completed',
        completed_at = now()
    where t.id = any(${complete.map((task) => task.id)}::uuid[])
      and t.status = 'processing'
      and ${noneOpen(tx)}
    returning t.id`;
  return closed.map((task) => task.id);
}

function noneOpen(tx: Sql | Tx) {
  return tx`not exists (
        select 1
        from asl_schema.extraction_result r
        where r.task_id = t.id
          and r.status in ('pending', 'extracting')
      )`;
}
