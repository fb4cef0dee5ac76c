-- migrate:up

-- A paper in the store. `project_id` is the caller's own word for a collection: an opaque text, no table of ours.
-- The same bytes twice in a project are one document, which the unique constraint decides, not a read before a write.
-- `storage_key` says where the bytes lie: today always a row of document_content. Results copy the key when a task is
-- created, so that what a task reads is settled at that moment.
create table asl_schema.document (
  id          uuid        not null,
  project_id  text        not null,
  filename    text        not null,
  media_type  text        not null,
  byte_size   bigint      not null,
  sha256      text        not null,
  storage_key text        not null,
  created_at  timestamptz not null default now(),
  constraint document_pkey primary key (id),
  constraint document_project_sha256_key unique (project_id, sha256),
  constraint document_storage_key_key unique (storage_key),
  constraint document_media_type_check check (media_type in ('application/pdf', 'text/plain', 'text/markdown')),
  constraint document_byte_size_check check (byte_size >= 0),
  constraint document_sha256_check check (sha256 ~ '^[0-9a-f]{64}$')
);

-- Listing a project's documents is a keyset walk: ids are UUIDv7, so their order is the order of arrival.
create index document_project_id_id_idx on asl_schema.document (project_id, id);

-- The bytes, apart from what is listed and joined, so that no query drags a paper along by accident. PDFs are compressed
-- already: `external` keeps PostgreSQL from spending time on compressing them again.
create table asl_schema.document_content (
  storage_key text  not null,
  content     bytea not null,
  constraint document_content_pkey primary key (storage_key)
);
alter table asl_schema.document_content alter column content set storage external;

-- migrate:down

drop table asl_schema.document_content;
drop table asl_schema.document;
