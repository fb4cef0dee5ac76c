import { connect, type Sql } from '../src/db.ts';
import type { Answer } from './work.ts';

/** An item as the others get it: ids only, as our own jobs hold. */
export type Item = { taskId: string; itemId: string };

/** One row a result, as the user of a plain job queue would have it. */
export async function createBenchResult(databaseUrl: string): Promise<void> {
  const sql = connect(databaseUrl, { max: 1, applicationName: 'bench' });
  await sql`
    create table bench_result (
      task_id     uuid        not null,
      item_id     uuid        not null,
      data        json        not null,
      finished_at timestamptz not null default now(),
      constraint bench_result_pkey primary key (task_id, item_id)
    )`;
  await sql.end();
}

/** How many results of a task are durable: the question that their users ask to know whether a bundle is complete. */
export async function countBenchResults(sql: Sql, taskId: string): Promise<number> {
  const [row] = await sql<{ done: number }[]>`
    select count(*)::int as done
    from bench_result
    where task_id = ${taskId}::uuid`;
  return row?.done ?? 0;
}

/** The statement of one item, by position: task, item, data. A job may come twice, its result must not. */
export const SAVE_ONE = `
  insert into bench_result (task_id, item_id, data)
  values ($1, $2, $3)
  on conflict on constraint bench_result_pkey do nothing`;

/** The statement of many, from one JSON text. */
export const SAVE_MANY = `
  insert into bench_result (task_id, item_id, data)
  select task_id, item_id, data
  from json_to_recordset($1::text::json) as r (task_id uuid, item_id uuid, data json)
  on conflict on constraint bench_result_pkey do nothing`;

export type Finished = { item: Item; answer: Answer };

/** The parameter of SAVE_MANY. */
export function toRows(finished: readonly Finished[]): string {
  return JSON.stringify(
    finished.map(({ item: { taskId, itemId }, answer }) => ({ task_id: taskId, item_id: itemId, data: answer })),
  );
}

/** Groups that are written at the same time: with one, all handlers of a process would wait for the same commit. */
const FLIGHTS = 3;

type Waiting = Finished & { resolve: () => void; reject: (error: unknown) => void };

/**
 * Writes results in groups for handlers that get one item each: who comes while groups are being written goes with the next.
 * Nobody waits for a timer.
 */
export function createBatchWriter(save: (rows: string) => Promise<unknown>): (finished: Finished) => Promise<void> {
  let queue: Waiting[] = [];
  let running = 0;

  const run = async (): Promise<void> => {
    running += 1;
    while (queue.length > 0) {
      const group = queue;
      queue = [];
      try {
        await save(toRows(group));
        for (const { resolve } of group) resolve();
      } catch (error) {
        for (const { reject } of group) reject(error);
      }
    }
    running -= 1;
  };

  return (finished) =>
    new Promise((resolve, reject) => {
      queue.push({ ...finished, resolve, reject });
      if (running < FLIGHTS) void run();
    });
}
