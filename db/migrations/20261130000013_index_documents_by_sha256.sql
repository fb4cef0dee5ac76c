-- migrate:up

-- Whether another document, of any project, has the bytes of one that is deleted: only then its parsed text stays.
create index document_sha256_idx on asl_schema.document (sha256);

-- migrate:down

drop index asl_schema.document_sha256_idx;
