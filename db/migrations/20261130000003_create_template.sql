-- migrate:up

-- What to extract: a list of fields. A template is never changed; a change is a new version under the same name. `fields`
-- is validated where it enters (src/templates/template.ts) and kept as it was sent.
create table asl_schema.template (
  id          uuid        not null,
  name        text        not null,
  version     integer     not null,
  description text,
  fields      jsonb       not null,
  created_at  timestamptz not null default now(),
  constraint template_pkey primary key (id),
  constraint template_name_version_key unique (name, version),
  constraint template_version_check check (version >= 1),
  constraint template_fields_check check (jsonb_typeof(fields) = 'array')
);

-- migrate:down

drop table asl_schema.template;
