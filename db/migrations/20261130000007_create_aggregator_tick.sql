-- migrate:up

-- One row for all processes. Whoever holds its lock runs the aggregator's round; the others pass by (skip locked). A process
-- that dies in mid-round drops the lock with its connection, and its round with it.
--
-- swept_at           when the last full round ended: the next is due a round's interval later, whichever process it finds
-- cursor_*           how far the search for pending results without a job has come; it goes on from there
create table asl_schema.aggregator_tick (
  id               boolean     not null default true,
  swept_at         timestamptz not null default 'epoch',
  swept_by         text,
  cursor_task_id   uuid        not null default '00000000-0000-0000-0000-000000000000',
  cursor_result_id uuid        not null default '00000000-0000-0000-0000-000000000000',
  constraint aggregator_tick_pkey primary key (id),
  constraint aggregator_tick_one_row_check check (id)
);
insert into asl_schema.aggregator_tick default values;

-- migrate:down

drop table asl_schema.aggregator_tick;
