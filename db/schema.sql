-- The schema that db/migrations/ make together: written by `make schema`, for reading only.

CREATE SCHEMA asl_schema;

CREATE TABLE asl_schema.aggregator_tick (
    swept_at timestamp with time zone DEFAULT '1970-01-01 00:00:00+00'::timestamp with time zone NOT NULL,
    swept_by text,
    cursor_task_id uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    cursor_result_id uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    mode text NOT NULL,
    CONSTRAINT aggregator_tick_mode_check CHECK ((mode = ANY (ARRAY['scatter'::text, 'fanout'::text])))
);

CREATE TABLE asl_schema.document (
    id uuid NOT NULL,
    project_id text NOT NULL,
    filename text NOT NULL,
    media_type text NOT NULL,
    byte_size bigint NOT NULL,
    sha256 text NOT NULL,
    storage_key text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT document_byte_size_check CHECK ((byte_size >= 0)),
    CONSTRAINT document_media_type_check CHECK ((media_type = ANY (ARRAY['application/pdf'::text, 'text/plain'::text, 'text/markdown'::text]))),
    CONSTRAINT document_sha256_check CHECK ((sha256 ~ '^[0-9a-f]{64}$'::text))
);

CREATE TABLE asl_schema.document_content (
    storage_key text NOT NULL,
    content bytea NOT NULL
);
ALTER TABLE ONLY asl_schema.document_content ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE TABLE asl_schema.extraction_attempt (
    task_id uuid NOT NULL,
    result_id uuid NOT NULL,
    attempt integer NOT NULL,
    worker text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    outcome text,
    error_code text,
    error_message text,
    usage jsonb,
    CONSTRAINT extraction_attempt_attempt_check CHECK ((attempt >= 1)),
    CONSTRAINT extraction_attempt_finished_at_check CHECK (((outcome IS NULL) = (finished_at IS NULL))),
    CONSTRAINT extraction_attempt_outcome_check CHECK ((outcome = ANY (ARRAY['completed'::text, 'error'::text, 'retry'::text, 'deferred'::text, 'released'::text, 'lost'::text, 'cancelled'::text])))
);

CREATE TABLE asl_schema.extraction_result (
    task_id uuid NOT NULL,
    id uuid NOT NULL,
    document_id uuid NOT NULL,
    storage_key text NOT NULL,
    filename text NOT NULL,
    media_type text NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    failed_attempts integer DEFAULT 0 NOT NULL,
    job_id uuid NOT NULL,
    delivery integer,
    extracted_data json,
    usage jsonb,
    error_code text,
    error_message text,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT extraction_result_attempt_check CHECK (((attempt >= 0) AND ((failed_attempts >= 0) AND (failed_attempts <= attempt)))),
    CONSTRAINT extraction_result_data_check CHECK (((status = 'completed'::text) = (extracted_data IS NOT NULL))),
    CONSTRAINT extraction_result_delivery_check CHECK (((status <> 'extracting'::text) OR (delivery IS NOT NULL))),
    CONSTRAINT extraction_result_error_check CHECK (((status = 'error'::text) = (error_code IS NOT NULL))),
    CONSTRAINT extraction_result_finished_at_check CHECK (((status = ANY (ARRAY['completed'::text, 'error'::text, 'cancelled'::text])) = (finished_at IS NOT NULL))),
    CONSTRAINT extraction_result_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'extracting'::text, 'completed'::text, 'error'::text, 'cancelled'::text])))
);

CREATE TABLE asl_schema.extraction_task (
    id uuid NOT NULL,
    project_id text NOT NULL,
    template_id uuid NOT NULL,
    template_version integer NOT NULL,
    mode text NOT NULL,
    idempotency_key text,
    request_fingerprint text NOT NULL,
    total_count integer,
    status text DEFAULT 'processing'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    completed_at timestamp with time zone,
    deadline_at timestamp with time zone,
    max_failed_count integer,
    max_failed_percent double precision,
    failure_limit integer GENERATED ALWAYS AS (LEAST(max_failed_count, (floor((((total_count)::double precision * max_failed_percent) / (100)::double precision)))::integer)) STORED,
    status_reason text,
    CONSTRAINT extraction_task_completed_at_check CHECK (((status = 'processing'::text) = (completed_at IS NULL))),
    CONSTRAINT extraction_task_ended_reason_check CHECK (((status <> ALL (ARRAY['cancelled'::text, 'failed'::text])) OR (status_reason IS NOT NULL))),
    CONSTRAINT extraction_task_max_failed_count_check CHECK ((max_failed_count >= 0)),
    CONSTRAINT extraction_task_max_failed_percent_check CHECK (((max_failed_percent >= (0)::double precision) AND (max_failed_percent <= (100)::double precision))),
    CONSTRAINT extraction_task_mode_check CHECK ((mode = ANY (ARRAY['scatter'::text, 'fanout'::text]))),
    CONSTRAINT extraction_task_request_fingerprint_check CHECK ((request_fingerprint ~ '^[0-9a-f]{64}$'::text)),
    CONSTRAINT extraction_task_status_check CHECK ((status = ANY (ARRAY['processing'::text, 'completed'::text, 'cancelled'::text, 'failed'::text]))),
    CONSTRAINT extraction_task_status_reason_check CHECK ((status_reason = ANY (ARRAY['cancelled_by_user'::text, 'failure_threshold'::text, 'deadline_exceeded'::text, 'expansion_failed'::text, 'too_many_documents'::text, 'no_progress'::text]))),
    CONSTRAINT extraction_task_total_count_check CHECK ((total_count >= 0)),
    CONSTRAINT extraction_task_total_count_known_check CHECK (((total_count IS NOT NULL) OR (mode = 'fanout'::text)))
);

CREATE TABLE asl_schema.fanout_expansion (
    task_id uuid NOT NULL,
    document_ids uuid[],
    documents_until timestamp with time zone,
    next_position integer DEFAULT 0 NOT NULL,
    last_document_id uuid,
    priority_base integer
);

CREATE TABLE asl_schema.fanout_tally (
    task_id uuid NOT NULL,
    added_count integer DEFAULT 0 NOT NULL,
    expected_count integer,
    success_count integer DEFAULT 0 NOT NULL,
    failed_count integer DEFAULT 0 NOT NULL,
    cancelled_count integer DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT fanout_tally_counts_check CHECK (((success_count >= 0) AND (failed_count >= 0) AND (cancelled_count >= 0) AND (((success_count + failed_count) + cancelled_count) <= added_count))),
    CONSTRAINT fanout_tally_expected_count_check CHECK ((expected_count = added_count))
)
WITH (fillfactor='10');

CREATE TABLE asl_schema.parsed_text (
    sha256 text NOT NULL,
    parser text NOT NULL,
    version text NOT NULL,
    document json NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT parsed_text_sha256_check CHECK ((sha256 ~ '^[0-9a-f]{64}$'::text))
);

CREATE TABLE asl_schema.permit (
    id uuid NOT NULL,
    stage text NOT NULL,
    task_id uuid NOT NULL,
    holder text NOT NULL,
    requested_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    granted_at timestamp with time zone,
    expires_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

CREATE TABLE asl_schema.schema_migrations (
    version character varying(128) NOT NULL
);

CREATE TABLE asl_schema.stage (
    stage text NOT NULL,
    permits integer NOT NULL,
    requests_per_minute integer,
    tokens_per_minute integer,
    window_started_at timestamp with time zone DEFAULT now() NOT NULL,
    window_requests integer DEFAULT 0 NOT NULL,
    window_tokens bigint DEFAULT 0 NOT NULL,
    paused_until timestamp with time zone,
    pause_code text,
    pause_message text,
    failures integer DEFAULT 0 NOT NULL,
    CONSTRAINT stage_failures_check CHECK ((failures >= 0)),
    CONSTRAINT stage_pause_check CHECK (((paused_until IS NULL) = (pause_code IS NULL))),
    CONSTRAINT stage_permits_check CHECK ((permits >= 0)),
    CONSTRAINT stage_requests_per_minute_check CHECK ((requests_per_minute > 0)),
    CONSTRAINT stage_tokens_per_minute_check CHECK ((tokens_per_minute > 0))
)
WITH (fillfactor='10');

CREATE TABLE asl_schema.template (
    id uuid NOT NULL,
    name text NOT NULL,
    version integer NOT NULL,
    description text,
    fields jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT template_fields_check CHECK ((jsonb_typeof(fields) = 'array'::text)),
    CONSTRAINT template_version_check CHECK ((version >= 1))
);

ALTER TABLE ONLY asl_schema.aggregator_tick
    ADD CONSTRAINT aggregator_tick_pkey PRIMARY KEY (mode);

ALTER TABLE ONLY asl_schema.document_content
    ADD CONSTRAINT document_content_pkey PRIMARY KEY (storage_key);

ALTER TABLE ONLY asl_schema.document
    ADD CONSTRAINT document_pkey PRIMARY KEY (id);

ALTER TABLE ONLY asl_schema.document
    ADD CONSTRAINT document_project_sha256_key UNIQUE (project_id, sha256);

ALTER TABLE ONLY asl_schema.document
    ADD CONSTRAINT document_storage_key_key UNIQUE (storage_key);

ALTER TABLE ONLY asl_schema.extraction_attempt
    ADD CONSTRAINT extraction_attempt_pkey PRIMARY KEY (task_id, result_id, attempt);

ALTER TABLE ONLY asl_schema.extraction_result
    ADD CONSTRAINT extraction_result_pkey PRIMARY KEY (task_id, id);

ALTER TABLE ONLY asl_schema.extraction_task
    ADD CONSTRAINT extraction_task_idempotency_key_key UNIQUE (idempotency_key);

ALTER TABLE ONLY asl_schema.extraction_task
    ADD CONSTRAINT extraction_task_pkey PRIMARY KEY (id);

ALTER TABLE ONLY asl_schema.fanout_expansion
    ADD CONSTRAINT fanout_expansion_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY asl_schema.fanout_tally
    ADD CONSTRAINT fanout_tally_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY asl_schema.parsed_text
    ADD CONSTRAINT parsed_text_pkey PRIMARY KEY (sha256, parser, version);

ALTER TABLE ONLY asl_schema.permit
    ADD CONSTRAINT permit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY asl_schema.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY asl_schema.stage
    ADD CONSTRAINT stage_pkey PRIMARY KEY (stage);

ALTER TABLE ONLY asl_schema.template
    ADD CONSTRAINT template_name_version_key UNIQUE (name, version);

ALTER TABLE ONLY asl_schema.template
    ADD CONSTRAINT template_pkey PRIMARY KEY (id);

CREATE INDEX document_project_id_id_idx ON asl_schema.document USING btree (project_id, id);

CREATE INDEX document_sha256_idx ON asl_schema.document USING btree (sha256);

CREATE INDEX extraction_result_task_id_status_idx ON asl_schema.extraction_result USING btree (task_id, status);

CREATE INDEX extraction_task_completed_at_idx ON asl_schema.extraction_task USING btree (completed_at) WHERE (completed_at IS NOT NULL);

CREATE INDEX extraction_task_deadline_at_idx ON asl_schema.extraction_task USING btree (deadline_at) WHERE ((status = 'processing'::text) AND (deadline_at IS NOT NULL));

CREATE INDEX extraction_task_failure_limit_idx ON asl_schema.extraction_task USING btree (id) WHERE ((status = 'processing'::text) AND (failure_limit IS NOT NULL));

CREATE INDEX extraction_task_open_idx ON asl_schema.extraction_task USING btree (id) WHERE (status = 'processing'::text);

CREATE INDEX extraction_task_project_id_id_idx ON asl_schema.extraction_task USING btree (project_id, id);

CREATE INDEX extraction_task_status_id_idx ON asl_schema.extraction_task USING btree (status, id);

CREATE INDEX permit_granted_idx ON asl_schema.permit USING btree (stage, task_id) WHERE (granted_at IS NOT NULL);

CREATE INDEX permit_waiting_idx ON asl_schema.permit USING btree (stage, requested_at) WHERE (granted_at IS NULL);

ALTER TABLE ONLY asl_schema.extraction_attempt
    ADD CONSTRAINT extraction_attempt_result_fkey FOREIGN KEY (task_id, result_id) REFERENCES asl_schema.extraction_result(task_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY asl_schema.extraction_result
    ADD CONSTRAINT extraction_result_task_id_fkey FOREIGN KEY (task_id) REFERENCES asl_schema.extraction_task(id) ON DELETE CASCADE;

ALTER TABLE ONLY asl_schema.extraction_task
    ADD CONSTRAINT extraction_task_template_id_fkey FOREIGN KEY (template_id) REFERENCES asl_schema.template(id);

ALTER TABLE ONLY asl_schema.fanout_expansion
    ADD CONSTRAINT fanout_expansion_task_id_fkey FOREIGN KEY (task_id) REFERENCES asl_schema.extraction_task(id) ON DELETE CASCADE;

ALTER TABLE ONLY asl_schema.fanout_tally
    ADD CONSTRAINT fanout_tally_task_id_fkey FOREIGN KEY (task_id) REFERENCES asl_schema.extraction_task(id) ON DELETE CASCADE;

ALTER TABLE ONLY asl_schema.permit
    ADD CONSTRAINT permit_stage_fkey FOREIGN KEY (stage) REFERENCES asl_schema.stage(stage);
