-- migrate:up

-- A scarce service that all processes share: `parse` reads papers, `llm` fills fields. One row a stage, which every grant
-- locks for a moment; that is what makes the limits exact. Change a limit here, at any time: it is heeded within a second.
--
-- permits              how many may use the stage at a time
-- requests_per_minute,
-- tokens_per_minute    budgets, null for none; window_* count what the minute that began at window_started_at has used
-- paused_until         nobody is let in before: a server's Retry-After, a circuit that is open; infinity: until someone acts
-- failures             failures in a row, over all processes; from ten on the circuit is open
create table asl_schema.stage (
  stage               text        not null,
  permits             integer     not null,
  requests_per_minute integer,
  tokens_per_minute   integer,
  window_started_at   timestamptz not null default now(),
  window_requests     integer     not null default 0,
  window_tokens       bigint      not null default 0,
  paused_until        timestamptz,
  pause_code          text,
  pause_message       text,
  failures            integer     not null default 0,
  constraint stage_pkey primary key (stage),
  constraint stage_permits_check check (permits >= 0),
  constraint stage_requests_per_minute_check check (requests_per_minute > 0),
  constraint stage_tokens_per_minute_check check (tokens_per_minute > 0),
  constraint stage_failures_check check (failures >= 0),
  constraint stage_pause_check check ((paused_until is null) = (pause_code is null))
)
-- Two rows, written at every grant: room on the page keeps the new versions off the index and the old ones short-lived.
with (fillfactor = 10);
insert into asl_schema.stage (stage, permits) values ('parse', 2), ('llm', 5);

-- The queue before each stage, and who is inside: a ticket waits until it is granted, and is deleted when its holder is done.
-- A ticket is good until expires_at, which its process puts off while it lives; one of a dead process is deleted after that.
--
-- task_id  whose turn it is depends on it, no more: a ticket outlives its task by seconds at most, so there is no foreign key
-- holder   the process, for people who look
create table asl_schema.permit (
  id           uuid        not null,
  stage        text        not null,
  task_id      uuid        not null,
  holder       text        not null,
  requested_at timestamptz not null default clock_timestamp(),
  granted_at   timestamptz,
  expires_at   timestamptz not null,
  constraint permit_pkey primary key (id),
  constraint permit_stage_fkey foreign key (stage) references asl_schema.stage (stage)
)
-- As many rows as there are slots in all processes, each soon gone and renewed meanwhile. No index holds expires_at, so a
-- renewal stays on its page; and vacuum comes by the number of dead rows, since a share of so few would never be reached.
with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Who waits, in the order of arrival; and who is inside, by task.
create index permit_waiting_idx on asl_schema.permit (stage, requested_at) where granted_at is null;
create index permit_granted_idx on asl_schema.permit (stage, task_id) where granted_at is not null;

-- migrate:down

drop table asl_schema.permit;
drop table asl_schema.stage;
