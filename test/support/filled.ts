import postgres from 'postgres';
import type { Sql } from '../../src/db.ts';
import { CHILD_QUEUE, EXTRACT_QUEUE, MANAGER_QUEUE } from '../../src/queue.ts';
import { TRIAL_TEMPLATE_ID } from './fixtures.ts';

/** Rows that one statement makes. */
const CHUNK = 500_000;

export type OldTasks = {
  tasks: number;
  /** Results of all of them together. */
  total: number;
  /** How many such tasks there are already. */
  from?: number;
};

/** Closed tasks of completed results, which stand for years of use; every fifth is a fan-out task. */
export async function fillOldTasks(sql: Sql, { tasks, total, from = 0 }: OldTasks): Promise<void> {
  const each = Math.ceil(total / tasks);
  const tasksAtATime = Math.max(1, Math.floor(CHUNK / Math.max(1, each)));
  for (let done = 0; done < tasks; done += tasksAtATime) {
    const count = Math.min(tasksAtATime, tasks - done);
    await sql`
      with old as (
        insert into asl_schema.extraction_task (
          id, project_id, template_id, template_version, mode, request_fingerprint, total_count, status, created_at,
          completed_at
        )
        select
          ('0190' || lpad(to_hex(${from + done}::int + n), 8, '0') || '-7000-8000-000000000000')::uuid, 'old-' || n % 100,
          ${TRIAL_TEMPLATE_ID}::uuid, 1, case when n % 5 = 0 then 'fanout' else 'scatter' end, repeat('0', 64),
          ${each}::int, 'completed', now() - interval '1 year', now() - interval '1 year'
        from generate_series(1, ${count}::int) as numbers (n)
        returning id, mode
      ),
      counted as (
        insert into asl_schema.fanout_tally (task_id, added_count, expected_count, success_count)
        select id, ${each}::int, ${each}::int, ${each}::int
        from old
        where mode = 'fanout'
      )
      insert into asl_schema.extraction_result (
        task_id, id, document_id, storage_key, filename, media_type, status, job_id, attempt, extracted_data, finished_at
      )
      select
        old.id, overlay(old.id::text placing lpad(to_hex(n), 12, '0') from 25)::uuid, gen_random_uuid(), 'none',
        'paper-' || n || '.txt', 'text/plain', 'completed', gen_random_uuid(), 1,
        '{"title":{"value":"A title","status":"found"}}', now() - interval '1 year'
      from old
      cross join generate_series(1, ${each}::int) as numbers (n)`;
  }
}

/**
 * The same with all that stands around: the attempts, the documents of a hundred projects, and the jobs that have ended within
 * the last hour, for so long pg-boss keeps them. Checks no foreign keys, which would take as long again; so it needs a superuser.
 */
export async function fillPast(url: string, old: OldTasks): Promise<void> {
  const connection = { session_replication_role: 'replica', synchronous_commit: 'off' };
  const sql = postgres(url, { max: 1, connection: connection as Record<string, string> });
  try {
    await fillOldTasks(sql, old);
    await sql`
      insert into asl_schema.extraction_attempt (task_id, result_id, attempt, worker, started_at, finished_at, outcome)
      select task_id, id, 1, 'worker-1', finished_at - interval '1 minute', finished_at, 'completed'
      from asl_schema.extraction_result
      where finished_at < now() - interval '1 day'
      on conflict on constraint extraction_attempt_pkey do nothing`;
    await sql`
      insert into asl_schema.document (id, project_id, filename, media_type, byte_size, sha256, storage_key)
      select
        gen_random_uuid(), 'old-' || n % 100, 'paper-' || n || '.txt', 'text/plain', 100,
        md5(random()::text) || md5(random()::text), gen_random_uuid()
      from generate_series(1, ${Math.ceil(old.total / 20)}::int) as numbers (n)`;
    const queues = { [EXTRACT_QUEUE]: 20, [CHILD_QUEUE]: 20, [MANAGER_QUEUE]: 100 };
    for (const [queue, part] of Object.entries(queues)) await fillEndedJobs(sql, queue, Math.ceil(old.total / part));
  } finally {
    await sql.end();
  }
}

async function fillEndedJobs(sql: Sql, queue: string, count: number): Promise<void> {
  await sql`
    insert into pgboss.job (
      id, name, data, state, priority, singleton_key, expire_seconds, heartbeat_seconds, retry_limit, policy, keep_until,
      created_on, started_on, completed_on
    )
    select
      gen_random_uuid(), ${queue}, jsonb_build_object('taskId', gen_random_uuid(), 'resultId', gen_random_uuid()),
      'completed', -n, 'extract-' || gen_random_uuid(), 1800, 10, 4, 'exclusive', now() + interval '90 days',
      ended_on - interval '1 minute', ended_on, ended_on
    from generate_series(1, ${count}::int) as numbers (n)
    cross join lateral (select now() - interval '1 hour' * n / ${count}::int as ended_on) times`;
}
