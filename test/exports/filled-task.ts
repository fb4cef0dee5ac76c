import { v7 as uuidv7 } from 'uuid';
import type { Sql } from '../../src/db.ts';
import { TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';

/** A closed task of `count` completed results, each with one quote of about `bytes` bytes, straight in the tables. */
export async function fillTask(sql: Sql, count: number, bytes: number): Promise<string> {
  const taskId = uuidv7();
  await sql`
    insert into asl_schema.extraction_task (
      id, project_id, template_id, template_version, mode, request_fingerprint, total_count, status, completed_at
    )
    values (
      ${taskId}::uuid, 'filled', ${TRIAL_TEMPLATE_ID}::uuid, 1, 'scatter', repeat('0', 64), ${count}, 'completed', now()
    )`;
  await addResults(sql, taskId, { from: 1, count, bytes });
  return taskId;
}

/** Adds completed results to a task; they sort by their number. */
export async function addResults(
  sql: Sql,
  taskId: string,
  { from, count, bytes }: { from: number; count: number; bytes: number },
): Promise<void> {
  const value = { value: 'A title', status: 'found', quote: 'words of a paper '.repeat(Math.ceil(bytes / 17)) };
  await sql`
    insert into asl_schema.extraction_result (
      task_id, id, document_id, storage_key, filename, media_type, status, job_id, attempt, extracted_data, finished_at
    )
    select
      ${taskId}::uuid, lpad(to_hex(n), 32, '0')::uuid, gen_random_uuid(), 'none', 'paper-' || n || '.txt', 'text/plain',
      'completed', gen_random_uuid(), 1, ${sql.json({ title: value })}::json, now()
    from generate_series(${from}::int, ${from + count - 1}::int) as numbers (n)`;
}
