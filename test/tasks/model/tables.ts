import type { Sql } from '../../../src/db.ts';
import { MANAGER_QUEUE } from '../../../src/queue.ts';
import type { ResultStatus, TaskStatus } from '../../../src/tasks/task.ts';
import type { TaskMode } from '../../../src/tasks/task-mode.ts';
import { findBrokenFanoutRules } from './fanout-rules.ts';

/** `text` is the whole row as PostgreSQL writes it: equal texts are equal rows. */
export type TaskRow = {
  id: string;
  status: TaskStatus;
  reason: string | null;
  /** Null as long as nobody knows it. */
  total: number | null;
  overdue: boolean;
  /** Closed for longer than the retention. */
  expired: boolean;
  endedAt: number;
  failureLimit: number | null;
  text: string;
};
export type ResultRow = {
  taskId: string;
  id: string;
  status: ResultStatus;
  attempt: number;
  failedAttempts: number;
  jobId: string;
  delivery: number | null;
  /** What the settle that completed it wrote into its data. */
  mark: string | null;
  code: string | null;
  text: string;
};
export type AttemptRow = { taskId: string; resultId: string; attempt: number; outcome: string | null; text: string };
export type JobRow = {
  id: string;
  taskId: string;
  resultId: string;
  state: string;
  live: boolean;
  retryCount: number;
  spent: boolean;
};

export type TallyRow = { taskId: string; expected: number | null; complete: boolean };

/** All tables, while nobody writes to them. */
export type Tables = {
  tasks: Map<string, TaskRow>;
  results: Map<string, ResultRow>;
  /** By `attemptKey`. */
  attempts: Map<string, AttemptRow>;
  jobs: Map<string, JobRow>;
  /** In fan-out mode, those of managers, and by task what its tally says. */
  managerJobs: Map<string, JobRow>;
  tallies: Map<string, TallyRow>;
};

export const attemptKey = (row: { resultId: string; attempt: number }): string => `${row.resultId}#${row.attempt}`;
export const isOpen = (row: ResultRow): boolean => row.status === 'pending' || row.status === 'extracting';

/** The present state of all tables. */
export async function readTables(sql: Sql, mode: TaskMode): Promise<Tables> {
  const [tasks, results, attempts, jobs, tallies] = await Promise.all([
    sql<TaskRow[]>`
      select id, status, status_reason as reason, total_count as total, coalesce(deadline_at <= now(), false) as overdue,
        coalesce(completed_at < now() - interval '30 minutes', false) as expired,
        coalesce(extract(epoch from completed_at), 0)::float8 as "endedAt", failure_limit as "failureLimit", t::text as text
      from asl_schema.extraction_task t
      order by id`,
    sql<ResultRow[]>`
      select task_id as "taskId", id, status, attempt, failed_attempts as "failedAttempts", job_id as "jobId", delivery,
        extracted_data ->> 'mark' as mark, error_code as code, r::text as text
      from asl_schema.extraction_result r
      order by task_id, id`,
    sql<AttemptRow[]>`
      select task_id as "taskId", result_id as "resultId", attempt, outcome, a::text as text
      from asl_schema.extraction_attempt a`,
    sql<(JobRow & { name: string })[]>`
      select id, name, data ->> 'taskId' as "taskId", data ->> 'resultId' as "resultId", state, state in ('created', 'retry', 'active') as live,
        retry_count as "retryCount", state = 'failed' and retry_count >= retry_limit as spent
      from pgboss.job
      where name in (${mode.queue}, ${MANAGER_QUEUE})
      order by id`,
    sql<TallyRow[]>`
      select task_id as "taskId", expected_count as expected,
        coalesce(success_count + failed_count + cancelled_count = expected_count, false) as complete
      from asl_schema.fanout_tally`,
  ]);
  return {
    tasks: new Map(tasks.map((row) => [row.id, row])),
    results: new Map(results.map((row) => [row.id, row])),
    attempts: new Map(attempts.map((row) => [attemptKey(row), row])),
    jobs: new Map(jobs.filter(({ name }) => name === mode.queue).map((row) => [row.id, row])),
    managerJobs: new Map(jobs.filter(({ name }) => name === MANAGER_QUEUE).map((row) => [row.id, row])),
    tallies: new Map(tallies.map((row) => [row.taskId, row])),
  };
}

/** What holds in every state, asked of whole tables: the rules that are broken, and where. */
export async function findBrokenRules(sql: Sql, options: { maxAttempts: number; mode: TaskMode }): Promise<string[]> {
  const { mode } = options;
  const broken = await sql<{ rule: string; at: string }[]>`
    with result as (
      select r.*, t.status as task_status
      from asl_schema.extraction_result r
      left join asl_schema.extraction_task t on t.id = r.task_id
    ),
    job as (
      select id, state, singleton_key, data ->> 'resultId' as result_id
      from pgboss.job
      where name = ${mode.queue} and state in ('created', 'retry', 'active')
    ),
    attempt as (
      select result_id, count(*) as made, max(attempt) as latest, count(*) filter (where outcome is null) as running,
        max(attempt) filter (where outcome is null) as running_attempt
      from asl_schema.extraction_attempt
      group by result_id
    )
    select 'a task has as many results as its total says' as rule, t.id::text as at
    from asl_schema.extraction_task t
    where t.mode = 'scatter' and t.total_count <> (select count(*) from result r where r.task_id = t.id)
    union all
    select 'a terminal row, and no other, has an end', id::text from result
    where (status in ('completed', 'error', 'cancelled')) <> (finished_at is not null)
    union all
    select 'a closed task, and no other, has an end', id::text from asl_schema.extraction_task
    where (status <> 'processing') <> (completed_at is not null)
    union all
    select 'a closed task has no open result', id::text from result
    where task_status is distinct from 'processing' and status in ('pending', 'extracting')
    union all
    select 'every claim is one attempt in the history', r.id::text
    from result r left join attempt a on a.result_id = r.id
    where (r.attempt, r.attempt) is distinct from (coalesce(a.made, 0), coalesce(a.latest, 0))
    union all
    select 'an extracting row, and no other, has one running attempt, its own', r.id::text
    from result r left join attempt a on a.result_id = r.id
    where (case when r.status = 'extracting' then 1 else 0 end) <> coalesce(a.running, 0)
      or (r.status = 'extracting' and r.attempt <> a.running_attempt)
    union all
    select 'no result spends more attempts than it has', id::text from result
    where failed_attempts > ${options.maxAttempts} or failed_attempts > attempt
      or (status in ('pending', 'extracting') and failed_attempts >= ${options.maxAttempts})
    union all
    select 'a key has one live job at most', singleton_key from job group by singleton_key having count(*) > 1
    union all
    select 'a result has one live job at most', result_id from job group by result_id having count(*) > 1
    union all
    select 'the live job of an open row is the one it names', r.id::text
    from result r join job j on j.result_id = r.id::text
    where r.status in ('pending', 'extracting') and r.job_id <> j.id
    union all
    select 'the job of an extracting row has been delivered', r.id::text
    from result r join job j on j.id = r.job_id
    where r.status = 'extracting' and j.state = 'created'`;
  const more = mode.name === 'fanout' ? await findBrokenFanoutRules(sql) : [];
  return [...broken, ...more].map(({ rule, at }) => `${rule}: ${at}`);
}
