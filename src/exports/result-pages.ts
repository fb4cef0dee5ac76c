import type { Sql } from '../db.ts';
import { resultColumns } from '../tasks/read-tasks.ts';
import type { ResultStatus, TaskResult } from '../tasks/task.ts';

/** A page ends with the result that takes its data past this many bytes, so it holds at most this and one result more. */
const PAGE_BYTES = 256 * 1024;
/** Bounds a page of results that carry no data. */
const PAGE_ROWS = 200;

const NIL = '00000000-0000-0000-0000-000000000000';

export type ResultSelection = { taskId: string; status?: ResultStatus | undefined };

/**
 * The results of a task in the order of its request, page by page, as `write` makes them: the next page is read when it is
 * asked for, and between two pages neither a transaction nor a connection is held. Each result comes once, as it is when
 * its page is read.
 *
 * @throws Error when the task is deleted meanwhile: what is missing then must not pass for the end
 */
export async function* resultPages<T>(
  sql: Sql,
  selection: ResultSelection,
  write: (results: readonly TaskResult[]) => T,
): AsyncGenerator<T, void, undefined> {
  let after: string | undefined = NIL;
  // In a function of its own, so that while a slow client takes what was written, the results themselves are not kept too.
  const next = async (from: string): Promise<T | undefined> => {
    const page = await readPage(sql, { ...selection, after: from });
    if (page === undefined) throw new Error('the task was deleted');
    after = page.at(-1)?.resultId;
    return after === undefined ? undefined : write(page);
  };
  while (after !== undefined) {
    const written = await next(after);
    if (written !== undefined) yield written;
  }
}

/**
 * The results after `after`; empty at the end, undefined when there is no such task any more.
 *
 * Steps along the primary key until the page is full, because a limit by rows alone would load whatever 200 results weigh. Only
 * a look at the data tells its size: what is stored is compressed, and may be a hundredth of it.
 */
async function readPage(
  sql: Sql,
  { taskId, status, after }: ResultSelection & { after: string },
): Promise<TaskResult[] | undefined> {
  const rows = await sql<(TaskResult | { resultId: null })[]>`
    with recursive page as (
      select ${after}::uuid as id, 0 as rows, 0::bigint as bytes
      union all
      select next.id, page.rows + 1, page.bytes + next.bytes
      from page
      cross join lateral (
        select r.id, coalesce(octet_length(r.extracted_data::text), 0) as bytes
        from asl_schema.extraction_result r
        where r.task_id = ${taskId}::uuid
          and r.id > page.id
          -- An expression, so that no step goes by (task_id, status) and sorts what it finds: all steps together go along
          -- the primary key once.
          ${status === undefined ? sql`` : sql`and r.status || '' = ${status}`}
        order by r.id
        limit 1
      ) next
      where page.rows < ${PAGE_ROWS}
        and page.bytes < ${PAGE_BYTES}
    )
    select result.*
    from asl_schema.extraction_task t
    left join (
      select result.*
      from page
      -- Each by its key, hence the offset: where tasks have been small so far, a walk through all of this one would seem no dearer.
      cross join lateral (
        select ${resultColumns(sql)}
        from asl_schema.extraction_result
        where task_id = ${taskId}::uuid
          and id = page.id
        offset 0
      ) result
      where page.rows > 0
    ) result on true
    where t.id = ${taskId}::uuid
    order by result."resultId"`;
  if (rows.length === 0) return undefined;
  return rows.filter((row) => row.resultId !== null);
}
