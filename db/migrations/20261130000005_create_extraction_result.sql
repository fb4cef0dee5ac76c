-- migrate:up

-- One document's row in one task. `task_id` leads the primary key, and every query carries it, so the table can be
-- hash-partitioned, or distributed, on it without a change of code. The ids of one task sort in the order of its request.
--
-- storage_key and filename are snapshots: the source may be renamed or deleted while the task runs, so there is no foreign
-- key to the document either.
--
-- attempt          counts claims and is the fencing token: a settle must name the attempt it belongs to.
-- failed_attempts  counts the claims that were spent (a transient error, a worker that died). A wait asked for by a server
--                  and a shutdown spend none, which is why this is not `attempt`.
-- job_id           the pg-boss job that may deliver this row now; a delivery by any other job is a phantom.
-- extracted_data   json, not jsonb: fields keep the order of their template, and nothing here looks inside.
-- delivery         the job's retry count at the claim: a higher one proves that pg-boss has given up the earlier delivery.
create table asl_schema.extraction_result (
  task_id         uuid        not null,
  id              uuid        not null,
  document_id     uuid        not null,
  storage_key     text        not null,
  filename        text        not null,
  media_type      text        not null,
  status          text        not null default 'pending',
  attempt         integer     not null default 0,
  failed_attempts integer     not null default 0,
  job_id          uuid        not null,
  delivery        integer,
  extracted_data  json,
  usage           jsonb,
  error_code      text,
  error_message   text,
  started_at      timestamptz,
  finished_at     timestamptz,
  updated_at      timestamptz not null default now(),
  constraint extraction_result_pkey primary key (task_id, id),
  constraint extraction_result_task_id_fkey foreign key (task_id)
    references asl_schema.extraction_task (id) on delete cascade,
  constraint extraction_result_status_check
    check (status in ('pending', 'extracting', 'completed', 'error', 'cancelled')),
  constraint extraction_result_attempt_check check (attempt >= 0 and failed_attempts between 0 and attempt),
  constraint extraction_result_finished_at_check
    check ((status in ('completed', 'error', 'cancelled')) = (finished_at is not null)),
  constraint extraction_result_data_check check ((status = 'completed') = (extracted_data is not null)),
  constraint extraction_result_error_check check ((status = 'error') = (error_code is not null)),
  constraint extraction_result_delivery_check check (status <> 'extracting' or delivery is not null)
);

-- Progress, sweeps and the close all ask for one task's rows of one status.
create index extraction_result_task_id_status_idx on asl_schema.extraction_result (task_id, status);

-- migrate:down

drop table asl_schema.extraction_result;
