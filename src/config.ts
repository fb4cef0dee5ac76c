import { availableParallelism } from 'node:os';
import * as v from 'valibot';

export const ROLES = ['api', 'worker', 'aggregator'] as const;
export type Role = (typeof ROLES)[number];

/** A whole number between two limits, as text in the environment. */
function integer(fallback: number, min: number, max: number) {
  return v.optional(
    v.pipe(
      v.string(),
      v.trim(),
      v.regex(/^\d+$/, 'must be a whole number'),
      v.transform(Number),
      v.minValue(min, `must be at least ${min}`),
      v.maxValue(max, `must be at most ${max}`),
    ),
    String(fallback),
  );
}

const megabyte = 1024 * 1024;
const day = 24 * 60 * 60;

/** A URL, without an end that a path would be added to twice. */
const url = v.optional(
  v.pipe(
    v.string(),
    v.trim(),
    v.check((value) => /^https?:\/\//.test(value) && URL.canParse(value), 'must be an http or https URL'),
    v.transform((value) => value.replace(/\/+$/, '')),
  ),
);
const word = v.optional(v.pipe(v.string(), v.trim()));
const price = v.optional(
  v.pipe(v.string(), v.trim(), v.regex(/^\d+(\.\d+)?$/, 'must be a number'), v.transform(Number)),
);

const environment = v.object({
  DATABASE_URL: v.pipe(
    v.string('is not set: give a PostgreSQL connection URL'),
    v.regex(/^postgres(ql)?:\/\//, 'must start with postgres://'),
  ),
  DATABASE_POOL_SIZE: integer(10, 2, 1000),
  DATABASE_SILENCE_SECONDS: integer(30, 1, 3600),
  HOST: v.optional(v.pipe(v.string(), v.trim(), v.nonEmpty()), '127.0.0.1'),
  PORT: integer(8080, 0, 65_535),
  ROLES: v.optional(
    v.pipe(
      v.string(),
      v.transform((text) => text.split(/[\s,]+/).filter((word) => word !== '')),
      v.array(v.picklist(ROLES, `must be some of ${ROLES.join(', ')}`)),
      v.nonEmpty(`must name at least one of ${ROLES.join(', ')}`),
    ),
    ROLES.join(','),
  ),
  LOG_LEVEL: v.optional(v.picklist(['debug', 'info', 'warn', 'error']), 'info'),
  WORKER_SLOTS: integer(10, 1, 1000),
  ENGINE_THREADS: integer(Math.max(2, availableParallelism() - 1), 1, 256),
  POLL_INTERVAL_MS: integer(1000, 50, 60_000),
  MAX_ATTEMPTS: integer(4, 1, 100),
  RETRY_DELAY_SECONDS: integer(10, 0, day),
  RETRY_DELAY_MAX_SECONDS: integer(600, 0, day),
  EXTRACTION_TIMEOUT_SECONDS: integer(600, 1, day),
  HEARTBEAT_SECONDS: integer(10, 10, 600),
  TAKEOVER_SECONDS: integer(30, 12, day),
  JOB_EXPIRY_SECONDS: integer(1800, 60, day),
  STALE_AFTER_SECONDS: integer(1800, 60, 7 * day),
  AGGREGATOR_INTERVAL_SECONDS: integer(10, 1, 600),
  RETENTION_DAYS: integer(0, 0, 36_500),
  SHUTDOWN_GRACE_SECONDS: integer(20, 0, 3600),
  MAX_DOCUMENT_BYTES: integer(50 * megabyte, 1, 500 * megabyte),
  MAX_UPLOAD_BYTES: integer(1024 * megabyte, 1, 100 * 1024 * megabyte),
  MAX_UPLOAD_FILES: integer(1000, 1, 10_000),
  MINERU_URL: url,
  MINERU_API_KEY: word,
  MINERU_DIALECT: v.optional(v.picklist(['auto', 'v3', 'v4', 'cloud']), 'auto'),
  MINERU_BACKEND: word,
  MINERU_LANGUAGE: word,
  LLM_BASE_URL: url,
  LLM_MODEL: word,
  LLM_API_KEY: word,
  LLM_CONTEXT_TOKENS: integer(32_768, 1000, 10_000_000),
  LLM_MAX_OUTPUT_TOKENS: integer(8192, 100, 1_000_000),
  LLM_TIMEOUT_SECONDS: integer(240, 1, 290),
  LLM_PRICE_INPUT: price,
  LLM_PRICE_OUTPUT: price,
  LLM_PRICE_CACHED: price,
});

/**
 * What the process runs with. Units stand last in the names.
 *
 * The limits of a result's life build on each other: a heartbeat lapses long before a job expires, an extraction times out
 * before its job does, and the sweep of stale results is the last fuse, never the first.
 */
export type Config = {
  databaseUrl: string;
  databasePoolSize: number;
  databaseSilenceMs: number;
  host: string;
  port: number;
  roles: ReadonlySet<Role>;
  logLevel: 'debug' | 'info' | 'warn' | 'error';
  workerSlots: number;
  engineThreads: number;
  pollIntervalMs: number;
  maxAttempts: number;
  retryDelayMs: number;
  retryDelayMaxMs: number;
  extractionTimeoutMs: number;
  heartbeatSeconds: number;
  /** How often lapsed heartbeats are looked for, so that a dead worker's result has another within TAKEOVER_SECONDS. */
  queueMonitorSeconds: number;
  jobExpirySeconds: number;
  staleAfterMs: number;
  aggregatorIntervalMs: number;
  /** Closed tasks older than this are deleted; undefined: never. */
  retentionMs: number | undefined;
  shutdownGraceMs: number;
  maxDocumentBytes: number;
  maxUploadBytes: number;
  maxUploadFiles: number;
  /** A server that reads PDFs; undefined: the embedded reader does. */
  mineru: MinerUConfig | undefined;
  /** A model that fills the fields; undefined: rules do. */
  model: ModelConfig | undefined;
};

export type MinerUConfig = {
  baseUrl: string;
  apiKey: string | undefined;
  dialect: 'auto' | 'v3' | 'v4' | 'cloud';
  backend: string | undefined;
  language: string | undefined;
};

export type ModelConfig = {
  baseUrl: string;
  model: string;
  apiKey: string | undefined;
  contextTokens: number;
  maxOutputTokens: number;
  requestTimeoutMs: number;
  /** Of a million tokens. */
  prices: { input: number; output: number; cached: number } | undefined;
};

/** The configuration does not make sense; `faults` names every fault, not the first one only. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly faults: readonly string[];
  constructor(faults: readonly string[]) {
    super(
      `the configuration has ${faults.length === 1 ? 'a fault' : 'faults'}:\n${faults.map((f) => `  ${f}`).join('\n')}`,
    );
    this.faults = faults;
  }
}

/**
 * Reads the configuration from environment variables; an empty variable counts as not set.
 *
 * @throws ConfigError naming every variable that is wrong
 */
export function loadConfig(env: Record<string, string | undefined> = process.env): Config {
  const set = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== undefined && value !== ''));
  const parsed = v.safeParse(environment, set);
  if (!parsed.success) {
    throw new ConfigError(parsed.issues.map((issue) => `${v.getDotPath(issue) ?? 'environment'} ${reason(issue)}`));
  }
  const e = parsed.output;
  const faults = [
    fault(e.EXTRACTION_TIMEOUT_SECONDS > e.JOB_EXPIRY_SECONDS, 'EXTRACTION_TIMEOUT_SECONDS', 'JOB_EXPIRY_SECONDS'),
    fault(e.JOB_EXPIRY_SECONDS > e.STALE_AFTER_SECONDS, 'JOB_EXPIRY_SECONDS', 'STALE_AFTER_SECONDS'),
    fault(e.RETRY_DELAY_SECONDS > e.RETRY_DELAY_MAX_SECONDS, 'RETRY_DELAY_SECONDS', 'RETRY_DELAY_MAX_SECONDS'),
    fault(e.MAX_DOCUMENT_BYTES > e.MAX_UPLOAD_BYTES, 'MAX_DOCUMENT_BYTES', 'MAX_UPLOAD_BYTES'),
    e.HEARTBEAT_SECONDS + 2 > e.TAKEOVER_SECONDS
      ? 'TAKEOVER_SECONDS must be at least 2 more than HEARTBEAT_SECONDS'
      : undefined,
    e.TAKEOVER_SECONDS >= e.JOB_EXPIRY_SECONDS ? 'TAKEOVER_SECONDS must be less than JOB_EXPIRY_SECONDS' : undefined,
    (e.LLM_BASE_URL === undefined) !== (e.LLM_MODEL === undefined)
      ? 'LLM_BASE_URL and LLM_MODEL go together: set both or none'
      : undefined,
    (e.LLM_PRICE_INPUT === undefined) !== (e.LLM_PRICE_OUTPUT === undefined)
      ? 'LLM_PRICE_INPUT and LLM_PRICE_OUTPUT go together: set both or none'
      : undefined,
  ].filter((text) => text !== undefined);
  if (faults.length > 0) throw new ConfigError(faults);
  return {
    databaseUrl: e.DATABASE_URL,
    databasePoolSize: e.DATABASE_POOL_SIZE,
    databaseSilenceMs: e.DATABASE_SILENCE_SECONDS * 1000,
    host: e.HOST,
    port: e.PORT,
    roles: new Set(e.ROLES),
    logLevel: e.LOG_LEVEL,
    workerSlots: e.WORKER_SLOTS,
    engineThreads: e.ENGINE_THREADS,
    pollIntervalMs: e.POLL_INTERVAL_MS,
    maxAttempts: e.MAX_ATTEMPTS,
    retryDelayMs: e.RETRY_DELAY_SECONDS * 1000,
    retryDelayMaxMs: e.RETRY_DELAY_MAX_SECONDS * 1000,
    extractionTimeoutMs: e.EXTRACTION_TIMEOUT_SECONDS * 1000,
    heartbeatSeconds: e.HEARTBEAT_SECONDS,
    // Two passes of the monitor, and the rest for a poll and a start.
    queueMonitorSeconds: Math.max(1, Math.floor((e.TAKEOVER_SECONDS - e.HEARTBEAT_SECONDS) / 3)),
    jobExpirySeconds: e.JOB_EXPIRY_SECONDS,
    staleAfterMs: e.STALE_AFTER_SECONDS * 1000,
    aggregatorIntervalMs: e.AGGREGATOR_INTERVAL_SECONDS * 1000,
    retentionMs: e.RETENTION_DAYS === 0 ? undefined : e.RETENTION_DAYS * day * 1000,
    shutdownGraceMs: e.SHUTDOWN_GRACE_SECONDS * 1000,
    maxDocumentBytes: e.MAX_DOCUMENT_BYTES,
    maxUploadBytes: e.MAX_UPLOAD_BYTES,
    maxUploadFiles: e.MAX_UPLOAD_FILES,
    mineru: e.MINERU_URL === undefined ? undefined : toMinerU(e.MINERU_URL, e),
    model:
      e.LLM_BASE_URL === undefined || e.LLM_MODEL === undefined ? undefined : toModel(e.LLM_BASE_URL, e.LLM_MODEL, e),
  };
}

type Environment = v.InferOutput<typeof environment>;

function toMinerU(baseUrl: string, e: Environment): MinerUConfig {
  const { MINERU_API_KEY: apiKey, MINERU_DIALECT: dialect, MINERU_BACKEND: backend, MINERU_LANGUAGE: language } = e;
  return { baseUrl, apiKey, dialect, backend, language };
}

function toModel(baseUrl: string, model: string, e: Environment): ModelConfig {
  const { LLM_PRICE_INPUT: input, LLM_PRICE_OUTPUT: output, LLM_PRICE_CACHED: cached } = e;
  return {
    baseUrl,
    model,
    apiKey: e.LLM_API_KEY,
    contextTokens: e.LLM_CONTEXT_TOKENS,
    maxOutputTokens: e.LLM_MAX_OUTPUT_TOKENS,
    requestTimeoutMs: e.LLM_TIMEOUT_SECONDS * 1000,
    prices: input === undefined || output === undefined ? undefined : { input, output, cached: cached ?? input },
  };
}

function fault(wrong: boolean, smaller: string, larger: string): string | undefined {
  return wrong ? `${smaller} must not be more than ${larger}` : undefined;
}

/** A missing variable is told apart from a wrong one; values are never repeated: one of them holds a password. */
function reason(issue: v.BaseIssue<unknown>): string {
  return issue.input === undefined ? 'is not set' : issue.message;
}
