import type { Sql } from '../../src/db.ts';

/**
 * Records every change of status or attempt that commits, in the database itself: what no process can forget to tell, and
 * what a look at the end would not show any more.
 *
 * @param pauseMs up to this long, at random, a change holds its row before it goes on: races that take microseconds in life
 *   get room to happen
 */
export async function installAudit(sql: Sql, pauseMs = 0): Promise<void> {
  await sql.unsafe(`
    create schema audit;

    create table audit.result_change (
      seq bigint generated always as identity primary key,
      at timestamptz not null default clock_timestamp(),
      tx xid8 not null default pg_current_xact_id(),
      task_id uuid, result_id uuid, task_status text,
      before text, after text, attempt_before int, attempt_after int
    );
    create table audit.task_change (
      seq bigint generated always as identity primary key,
      at timestamptz not null default clock_timestamp(),
      tx xid8 not null default pg_current_xact_id(),
      task_id uuid, before text, after text, open_results int
    );

    create function audit.record_result() returns trigger language plpgsql as $$
    begin
      insert into audit.result_change (task_id, result_id, task_status, before, after, attempt_before, attempt_after)
      select new.task_id, new.id, t.status, old.status, new.status, old.attempt, new.attempt
      from asl_schema.extraction_task t where t.id = new.task_id;
      if ${pauseMs} > 0 then perform pg_sleep(random() * ${pauseMs} / 1000); end if;
      return null;
    end $$;
    create trigger audit after update on asl_schema.extraction_result for each row
      when (old.status <> new.status or old.attempt <> new.attempt or old.extracted_data::text is distinct from new.extracted_data::text)
      execute function audit.record_result();

    create function audit.record_task() returns trigger language plpgsql as $$
    begin
      insert into audit.task_change (task_id, before, after, open_results)
      select new.id, old.status, new.status, count(*)
      from asl_schema.extraction_result r
      where r.task_id = new.id and r.status in ('pending', 'extracting');
      return null;
    end $$;
    create trigger audit after update on asl_schema.extraction_task for each row
      when (old.status <> new.status or old.completed_at is distinct from new.completed_at)
      execute function audit.record_task();`);
}

/** What must never be, each as a query of the rows that show it; `maxAttempts` stands for $1. */
const RULES: Record<string, string> = {
  'a result took a step that there is not': `
    select * from audit.result_change
    where (before, after, attempt_after - attempt_before) not in (
      ('pending', 'extracting', 1), ('extracting', 'extracting', 1),
      ('extracting', 'pending', 0), ('extracting', 'completed', 0), ('extracting', 'error', 0), ('extracting', 'cancelled', 0),
      ('pending', 'error', 0), ('pending', 'cancelled', 0),
      ('error', 'pending', 0), ('cancelled', 'pending', 0))`,
  'a result of a closed task changed': `
    select * from audit.result_change c
    where task_status <> 'processing'
      and not exists (select 1 from audit.task_change t where t.task_id = c.task_id and t.tx = c.tx)`,
  'a task took a step that there is not, or its end moved': `
    select * from audit.task_change
    where (before, after) not in (
      ('processing', 'completed'), ('processing', 'cancelled'), ('processing', 'failed'),
      ('completed', 'processing'), ('cancelled', 'processing'), ('failed', 'processing'))`,
  'a task was closed while results were open': `
    select * from audit.task_change where after = 'completed' and open_results > 0`,
  'a task was not closed exactly once more often than it was reopened': `
    select t.id, t.status,
      count(*) filter (where c.before = 'processing') as closes, count(*) filter (where c.after = 'processing') as reopened
    from asl_schema.extraction_task t left join audit.task_change c on c.task_id = t.id
    where t.total_count > 0
    group by t.id
    having count(*) filter (where c.before = 'processing') <> count(*) filter (where c.after = 'processing') + 1`,
  'a task is open, or its counts do not add up': `
    select t.id, t.status, t.total_count, count(r.id) as results,
      count(*) filter (where r.status in ('pending', 'extracting')) as open
    from asl_schema.extraction_task t left join asl_schema.extraction_result r on r.task_id = t.id
    left join asl_schema.fanout_tally y on y.task_id = t.id
    group by t.id, y.task_id
    having t.status = 'processing'
      or ((t.mode = 'scatter' or y.expected_count is not null) and t.total_count is distinct from count(r.id))
      or count(*) filter (where r.status in ('pending', 'extracting')) > 0`,
  'a tally does not say what the rows say, or a task was completed before its results were all made': `
    select t.id, t.status, t.total_count, y.*, count(r.id) as results
    from asl_schema.extraction_task t
    left join asl_schema.fanout_tally y on y.task_id = t.id
    left join asl_schema.fanout_expansion e on e.task_id = t.id
    left join asl_schema.extraction_result r on r.task_id = t.id
    where t.mode = 'fanout'
    group by t.id, y.task_id, e.task_id
    having (y.added_count, y.success_count, y.failed_count, y.cancelled_count, e.next_position) is distinct from (
        count(r.id), count(*) filter (where r.status = 'completed'), count(*) filter (where r.status = 'error'),
        count(*) filter (where r.status = 'cancelled'), count(r.id))
      or y.expected_count <> y.added_count
      or (t.status = 'completed' and y.expected_count is null)`,
  'a document has two results in one task': `
    select task_id, document_id, count(*) from asl_schema.extraction_result
    group by task_id, document_id having count(*) > 1`,
  'a result has two live jobs, or a task two live managers': `
    select name, data, count(*) from pgboss.job
    where name like 'asl_extract%' and state in ('created', 'retry', 'active')
    group by name, data having count(*) > 1`,
  'a job is live that nobody needs': `
    select id, name, state, data, retry_count from pgboss.job
    where name like 'asl_extract%' and state in ('created', 'retry', 'active')`,
  'the history of a result does not agree with its row': `
    select r.id, r.filename, r.status, r.attempt, r.failed_attempts, r.error_code, json_agg(a.outcome order by a.attempt) as outcomes
    from asl_schema.extraction_result r
    left join asl_schema.extraction_attempt a on a.task_id = r.task_id and a.result_id = r.id
    group by r.task_id, r.id
    having count(a.attempt) <> r.attempt
      or coalesce(max(a.attempt), 0) <> r.attempt
      or count(*) filter (where a.attempt is not null and a.outcome is null) > 0
      or count(*) filter (where a.outcome = 'completed') <> (r.status = 'completed')::int
      or (r.status = 'completed' and bool_or(a.outcome = 'completed' and a.attempt <> r.attempt))`,
  'two attempts at one result overlap': `
    select a.* from asl_schema.extraction_attempt a
    join asl_schema.extraction_attempt n
      on n.task_id = a.task_id and n.result_id = a.result_id and n.attempt = a.attempt + 1
    where a.finished_at is null or n.started_at < a.finished_at`,
  'a result was tried more often than allowed': `
    select r.id, r.filename, r.failed_attempts, count(*) as spent
    from asl_schema.extraction_result r
    join asl_schema.extraction_attempt a on a.task_id = r.task_id and a.result_id = r.id
    where a.outcome in ('retry', 'error', 'lost')
    group by r.task_id, r.id
    having r.failed_attempts > $1::int or count(*) > $1::int * (1 + (
      select count(*) from audit.result_change c
      where c.result_id = r.id and c.before in ('error', 'cancelled') and c.after = 'pending'))`,
  'a result was given up before its attempts were used up': `
    select id, filename, failed_attempts from asl_schema.extraction_result
    where error_code = 'worker_lost' and failed_attempts < $1::int`,
};

/** Every rule that the rows of a database at rest break, with at most three rows of evidence. */
export async function breaches(sql: Sql, maxAttempts = 4): Promise<string[]> {
  const found: string[] = [];
  for (const [rule, query] of Object.entries(RULES)) {
    const rows = await sql.unsafe(query, query.includes('$1') ? [maxAttempts] : []);
    const shown = rows.slice(0, 3).map((row) => `  ${JSON.stringify(row)}`);
    if (rows.length > 0) found.push(`${rule} (${rows.length}):\n${shown.join('\n')}`);
  }
  return found;
}

/** Whether nothing is open and no job is live: then the rules above hold, and not before. */
export async function isAtRest(sql: Sql): Promise<boolean> {
  const [row] = await sql<{ rest: boolean }[]>`
    select
      not exists (select 1 from asl_schema.extraction_task where status = 'processing')
      and not exists (select 1 from asl_schema.extraction_result where status in ('pending', 'extracting'))
      and not exists (
        select 1 from pgboss.job where name like 'asl_extract%' and state in ('created', 'retry', 'active')) as rest`;
  return row?.rest === true;
}

/** The name of the run whose value each completed result holds, by result id. */
export async function storedRuns(sql: Sql, taskId: string): Promise<Map<string, string>> {
  const rows = await sql<{ id: string; run: string }[]>`
    select id, extracted_data -> 'run' ->> 'value' as run
    from asl_schema.extraction_result
    where task_id = ${taskId} and status = 'completed'`;
  return new Map(rows.map((row) => [row.id, row.run]));
}
