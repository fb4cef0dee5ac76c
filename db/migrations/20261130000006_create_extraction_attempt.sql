-- migrate:up

-- The history of a result: one row a claim. A result shows its last error only; what went before stays here.
--
-- outcome is null while the attempt runs, then one of
--   completed | error                 the attempt ended the result
--   retry                             a transient error: the result went back to pending, an attempt was spent
--   deferred | released               a wait asked for by a server, a shutdown: back to pending, nothing was spent
--   lost                              its worker died or fell silent; the next claim or a sweep wrote this
--   cancelled                         the user cancelled the task meanwhile
create table asl_schema.extraction_attempt (
  task_id       uuid        not null,
  result_id     uuid        not null,
  attempt       integer     not null,
  worker        text        not null,
  started_at    timestamptz not null default now(),
  finished_at   timestamptz,
  outcome       text,
  error_code    text,
  error_message text,
  usage         jsonb,
  constraint extraction_attempt_pkey primary key (task_id, result_id, attempt),
  constraint extraction_attempt_result_fkey foreign key (task_id, result_id)
    references asl_schema.extraction_result (task_id, id) on delete cascade,
  constraint extraction_attempt_attempt_check check (attempt >= 1),
  constraint extraction_attempt_outcome_check
    check (outcome in ('completed', 'error', 'retry', 'deferred', 'released', 'lost', 'cancelled')),
  constraint extraction_attempt_finished_at_check check ((outcome is null) = (finished_at is null))
);

-- migrate:down

drop table asl_schema.extraction_attempt;
