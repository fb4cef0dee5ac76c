-- migrate:up

-- The counters of a fan-out task, apart from the task: each settle of one of its results writes this row, in one transaction
-- with the result, and only if the settle changed the result.
--
-- added_count     results that the manager has made so far
-- expected_count  how many there will be; null until the manager is done. Here and not on the task, so that the statement which
--                 counts a result knows, from the one row that it has locked, whether this was the last one.
-- updated_at      the last sign of life of the whole task
create table asl_schema.fanout_tally (
  task_id         uuid        not null,
  added_count     integer     not null default 0,
  expected_count  integer,
  success_count   integer     not null default 0,
  failed_count    integer     not null default 0,
  cancelled_count integer     not null default 0,
  updated_at      timestamptz not null default now(),
  constraint fanout_tally_pkey primary key (task_id),
  constraint fanout_tally_task_id_fkey foreign key (task_id)
    references asl_schema.extraction_task (id) on delete cascade,
  constraint fanout_tally_counts_check check (
    success_count >= 0 and failed_count >= 0 and cancelled_count >= 0
    and success_count + failed_count + cancelled_count <= added_count
  ),
  constraint fanout_tally_expected_count_check check (expected_count = added_count)
)
-- Every update finds room on its page (HOT), so that a row written 100,000 times stays one page.
with (fillfactor = 10);

-- What a manager works from, and how far it has come: written in one transaction with each chunk of results, so that whoever
-- goes on after a crash begins exactly there.
--
-- document_ids       the list of the request; null: all documents that the project has when the manager begins
-- documents_until    set by the first chunk of a whole project: later documents are not in it
-- next_position      of the list
-- last_document_id   of the project, which is walked by key
-- priority_base      the priority of a first result, by the head of the queue when the manager began: the others stand in line
--                    one behind the other from there; null: it begins, or goes on after a retry
create table asl_schema.fanout_expansion (
  task_id          uuid    not null,
  document_ids     uuid[],
  documents_until  timestamptz,
  next_position    integer not null default 0,
  last_document_id uuid,
  priority_base    integer,
  constraint fanout_expansion_pkey primary key (task_id),
  constraint fanout_expansion_task_id_fkey foreign key (task_id)
    references asl_schema.extraction_task (id) on delete cascade
);

-- Of a whole project, how many it will be is known when the manager is done. Until then a limit in percent has nothing that it
-- could be a part of, and is none: least() passes nulls by.
alter table asl_schema.extraction_task
  alter column total_count drop not null,
  add constraint extraction_task_total_count_known_check check (total_count is not null or mode = 'fanout'),
  drop constraint extraction_task_status_reason_check,
  add constraint extraction_task_status_reason_check check (
    status_reason in (
      'cancelled_by_user', 'failure_threshold', 'deadline_exceeded',
      'expansion_failed', 'too_many_documents', 'no_progress'
    )
  ),
  drop constraint extraction_task_cancelled_reason_check,
  add constraint extraction_task_ended_reason_check check (status not in ('cancelled', 'failed') or status_reason is not null);

-- A tick for each mode: their rounds do not wait for one another.
alter table asl_schema.aggregator_tick
  add column mode text not null default 'scatter',
  drop constraint aggregator_tick_pkey,
  drop constraint aggregator_tick_one_row_check,
  drop column id,
  add constraint aggregator_tick_pkey primary key (mode),
  add constraint aggregator_tick_mode_check check (mode in ('scatter', 'fanout'));
alter table asl_schema.aggregator_tick alter column mode drop default;
insert into asl_schema.aggregator_tick (mode) values ('fanout');

-- migrate:down

delete from asl_schema.extraction_task where mode = 'fanout';
delete from asl_schema.aggregator_tick where mode <> 'scatter';
alter table asl_schema.aggregator_tick
  add column id boolean not null default true,
  drop constraint aggregator_tick_mode_check,
  drop constraint aggregator_tick_pkey,
  drop column mode,
  add constraint aggregator_tick_pkey primary key (id),
  add constraint aggregator_tick_one_row_check check (id);
alter table asl_schema.extraction_task
  drop constraint extraction_task_ended_reason_check,
  add constraint extraction_task_cancelled_reason_check check (status <> 'cancelled' or status_reason is not null),
  drop constraint extraction_task_status_reason_check,
  add constraint extraction_task_status_reason_check
    check (status_reason in ('cancelled_by_user', 'failure_threshold', 'deadline_exceeded')),
  drop constraint extraction_task_total_count_known_check,
  alter column total_count set not null;
drop table asl_schema.fanout_expansion;
drop table asl_schema.fanout_tally;
