-- migrate:up

-- The text that a parser made of some bytes: made once, and read again by retries and by other tasks. The key is the content
-- of the paper and everything that shapes the text: the parser, its version and its options.
create table asl_schema.parsed_text (
  sha256     text        not null,
  parser     text        not null,
  version    text        not null,
  document   json        not null,
  created_at timestamptz not null default now(),
  constraint parsed_text_pkey primary key (sha256, parser, version),
  constraint parsed_text_sha256_check check (sha256 ~ '^[0-9a-f]{64}$')
);

-- migrate:down

drop table asl_schema.parsed_text;
