import { v7 as uuidv7 } from 'uuid';
import type { Sql, Tx } from '../src/db.ts';
import { EXTRACT_QUEUE } from '../src/queue.ts';
import { TRIAL_TEMPLATE_ID } from '../test/support/fixtures.ts';

/** The table in which pg-boss keeps the jobs of scatter tasks. */
export async function jobTable(sql: Sql): Promise<string> {
  const [queue] = await sql<
    { table: string }[]
  >`select table_name as table from pgboss.queue where name = ${EXTRACT_QUEUE}`;
  if (queue === undefined) throw new Error(`no queue ${EXTRACT_QUEUE}`);
  return queue.table;
}

/**
 * The rows that a create makes, by the fewest statements that can make them: a task, its results, their jobs. What a create
 * does beside (checking, deciding the key, answering) is not here, nor does a row cross the wire.
 */
export async function insertOpenTask(
  tx: Tx,
  { projectId, count, jobs }: { projectId: string; count: number; jobs: string },
): Promise<string> {
  const taskId = uuidv7();
  await tx`
    insert into asl_schema.extraction_task (
      id, project_id, template_id, template_version, mode, request_fingerprint, total_count
    )
    values (${taskId}::uuid, ${projectId}, ${TRIAL_TEMPLATE_ID}::uuid, 1, 'scatter', repeat('0', 64), ${count})`;
  await tx`
    insert into asl_schema.extraction_result (task_id, id, document_id, storage_key, filename, media_type, job_id)
    select
      ${taskId}::uuid, overlay(${taskId} placing lpad(to_hex(row_number() over ()), 12, '0') from 25)::uuid,
      id, storage_key, filename, media_type, gen_random_uuid()
    from asl_schema.document
    where project_id = ${projectId}
    limit ${count}`;
  await insertJobsOf(tx, taskId, jobs);
  return taskId;
}

/** Jobs of all pending results of a task, as pg-boss would have them. */
async function insertJobsOf(tx: Sql | Tx, taskId: string, jobs: string): Promise<void> {
  await tx`
    insert into pgboss.${tx(jobs)} (
      id, name, data, priority, singleton_key, expire_seconds, heartbeat_seconds, retry_limit, policy, keep_until
    )
    select
      job_id, ${EXTRACT_QUEUE}, jsonb_build_object('taskId', task_id, 'resultId', id), -row_number() over (order by id),
      'extract-' || id, 1800, 10, 4, 'exclusive', now() + interval '90 days'
    from asl_schema.extraction_result
    where task_id = ${taskId}::uuid
      and status = 'pending'`;
}

/** An open task of `count` pending results with their jobs, of documents that are not there: for claiming only. */
export async function fillQueue(sql: Sql, { count, jobs }: { count: number; jobs: string }): Promise<string> {
  const taskId = uuidv7();
  await sql`
    insert into asl_schema.extraction_task (
      id, project_id, template_id, template_version, mode, request_fingerprint, total_count
    )
    values (${taskId}::uuid, 'queued', ${TRIAL_TEMPLATE_ID}::uuid, 1, 'scatter', repeat('0', 64), ${count})`;
  await sql`
    insert into asl_schema.extraction_result (task_id, id, document_id, storage_key, filename, media_type, job_id)
    select
      ${taskId}::uuid, ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, gen_random_uuid(), 'none',
      'paper-' || n || '.txt', 'text/plain', gen_random_uuid()
    from generate_series(1, ${count}::int) as numbers (n)`;
  await insertJobsOf(sql, taskId, jobs);
  await sql`analyze asl_schema.extraction_result`;
  await sql`analyze pgboss.${sql(jobs)}`;
  return taskId;
}
