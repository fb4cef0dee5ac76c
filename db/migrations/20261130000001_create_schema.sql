-- migrate:up

-- Everything of ours lives in one schema, so that it can share a database with others; pg-boss keeps its own, `pgboss`.
-- dbmate has made the schema already where its own table of applied migrations lives in it.
create schema if not exists asl_schema;

-- migrate:down

-- The schema itself stays: dbmate's table of applied migrations is in it.
