-- migrate:up

-- One request: a template over N documents. `total_count` never changes after the create. There is no counter of successes
-- or failures here: workers never touch this row, and progress is one GROUP BY over the results.
--
-- `idempotency_key` is unique over all tasks, so that two requests in the same millisecond are decided by the index.
-- `request_fingerprint` is the SHA-256 of what was asked for: the same key with another request is refused, never answered
-- with a stranger's task.
create table asl_schema.extraction_task (
  id                  uuid        not null,
  project_id          text        not null,
  template_id         uuid        not null,
  template_version    integer     not null,
  mode                text        not null,
  idempotency_key     text,
  request_fingerprint text        not null,
  total_count         integer     not null,
  status              text        not null default 'processing',
  created_at          timestamptz not null default now(),
  completed_at        timestamptz,
  constraint extraction_task_pkey primary key (id),
  constraint extraction_task_idempotency_key_key unique (idempotency_key),
  constraint extraction_task_template_id_fkey foreign key (template_id) references asl_schema.template (id),
  constraint extraction_task_mode_check check (mode in ('scatter', 'fanout')),
  constraint extraction_task_status_check check (status in ('processing', 'completed', 'cancelled', 'failed')),
  constraint extraction_task_total_count_check check (total_count >= 0),
  constraint extraction_task_request_fingerprint_check check (request_fingerprint ~ '^[0-9a-f]{64}$'),
  constraint extraction_task_completed_at_check check ((status = 'processing') = (completed_at is null))
);

-- The aggregator reads the open tasks alone, however many closed ones there are.
create index extraction_task_open_idx on asl_schema.extraction_task (id) where status = 'processing';
create index extraction_task_project_id_id_idx on asl_schema.extraction_task (project_id, id);

-- migrate:down

drop table asl_schema.extraction_task;
