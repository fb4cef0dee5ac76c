-- migrate:up

-- What ends a task before its results do.
--
-- deadline_at                          what is unfinished by then ends as an error
-- max_failed_count, max_failed_percent as the request gave them; when more results than that have failed, the rest is cancelled
-- failure_limit                        both as one number: more failures than this stop the task
-- status_reason                        why the task ended otherwise than by its last result; null while it is open
alter table asl_schema.extraction_task
  add column deadline_at timestamptz,
  add column max_failed_count integer,
  add column max_failed_percent double precision,
  add column failure_limit integer generated always as (
    least(max_failed_count, floor(total_count * max_failed_percent / 100)::integer)
  ) stored,
  add column status_reason text,
  add constraint extraction_task_max_failed_count_check check (max_failed_count >= 0),
  add constraint extraction_task_max_failed_percent_check check (max_failed_percent between 0 and 100),
  add constraint extraction_task_status_reason_check
    check (status_reason in ('cancelled_by_user', 'failure_threshold', 'deadline_exceeded')),
  add constraint extraction_task_cancelled_reason_check check (status <> 'cancelled' or status_reason is not null);

-- Open tasks that have a limit are few among many; each round of the aggregator asks for just these.
create index extraction_task_deadline_at_idx on asl_schema.extraction_task (deadline_at)
  where status = 'processing' and deadline_at is not null;
create index extraction_task_failure_limit_idx on asl_schema.extraction_task (id)
  where status = 'processing' and failure_limit is not null;
-- Retention walks closed tasks by age.
create index extraction_task_completed_at_idx on asl_schema.extraction_task (completed_at) where completed_at is not null;

-- migrate:down

drop index asl_schema.extraction_task_completed_at_idx;
drop index asl_schema.extraction_task_failure_limit_idx;
drop index asl_schema.extraction_task_deadline_at_idx;
alter table asl_schema.extraction_task
  drop constraint extraction_task_cancelled_reason_check,
  drop constraint extraction_task_status_reason_check,
  drop constraint extraction_task_max_failed_percent_check,
  drop constraint extraction_task_max_failed_count_check,
  drop column status_reason,
  drop column failure_limit,
  drop column max_failed_percent,
  drop column max_failed_count,
  drop column deadline_at;
