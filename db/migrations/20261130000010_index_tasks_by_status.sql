-- migrate:up

-- Listing the tasks of one status, newest first, walks this index; without it, all tasks.
create index extraction_task_status_id_idx on asl_schema.extraction_task (status, id);

-- migrate:down

drop index asl_schema.extraction_task_status_id_idx;
