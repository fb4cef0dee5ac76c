import { createHash } from 'node:crypto';
import { after } from 'node:test';
import type { PgBoss } from 'pg-boss';
import { v7 as uuidv7 } from 'uuid';
import type { Sql } from '../../src/db.ts';
import { createLogger } from '../../src/log.ts';
import { type ExtractJob, type HeldJob, type JobLimits, on, startQueue } from '../../src/queue.ts';
import { type Claim, claimResults, type Delivery } from '../../src/tasks/claim-results.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { SCATTER } from '../../src/tasks/scatter.ts';
import type { Counting } from '../../src/tasks/task-mode.ts';
import { openTestDatabase, type TestDatabase } from './database.ts';

/** The template that every migrated database has. */
export const TRIAL_TEMPLATE_ID = '01939f00-0000-7000-8000-000000000001';

export const limits: JobLimits = { jobExpirySeconds: 1800, heartbeatSeconds: 10, maxAttempts: 4 };

export const silent = createLogger({ level: 'error', write: () => {} });

export type TestBench = TestDatabase & {
  boss: PgBoss;
  /** Whose results the helpers below take; default scatter. */
  mode?: Counting;
};

/** A database of the file's own with a queue on it; nothing runs by itself. */
export async function openTestBench(file: string): Promise<TestBench> {
  const database = await openTestDatabase(file);
  const boss = await startQueue({ databaseUrl: database.url, supervise: false, log: silent });
  after(() => boss.stop({ graceful: false }));
  return { ...database, boss };
}

/** Stores `count` small text documents in a project. */
export async function makeDocuments(sql: Sql, projectId: string, count: number): Promise<string[]> {
  return await makeNamedDocuments(
    sql,
    projectId,
    Array.from({ length: count }, (_, i) => `paper-${i}.txt`),
  );
}

/** The same with names of the test's choice: a stand-in engine may go by them. */
export async function makeNamedDocuments(sql: Sql, projectId: string, names: readonly string[]): Promise<string[]> {
  const rows = names.map((filename, i) => {
    const content = `Paper ${i} of ${projectId}`;
    const id = uuidv7();
    return { id, filename, content, sha256: createHash('sha256').update(content).digest('hex') };
  });
  await sql`
    with wanted as (
      select * from jsonb_to_recordset(${sql.json(rows)}) as w (id uuid, filename text, content text, sha256 text)
    ),
    stored as (
      insert into asl_schema.document_content (storage_key, content)
      select 'test:' || id, convert_to(content, 'UTF8') from wanted
    )
    insert into asl_schema.document (id, project_id, filename, media_type, byte_size, sha256, storage_key)
    select id, ${projectId}, filename, 'text/plain', length(content), sha256, 'test:' || id from wanted`;
  return rows.map((row) => row.id);
}

/** A task over `count` new documents of a project of its own. */
export async function makeTask(
  { sql, boss }: TestBench,
  count: number,
  jobLimits: JobLimits = limits,
): Promise<{ taskId: string; projectId: string; resultIds: string[] }> {
  const projectId = `project-${uuidv7()}`;
  const documentIds = await makeDocuments(sql, projectId, count);
  const request = { projectId, templateId: TRIAL_TEMPLATE_ID, documentIds, idempotencyKey: null };
  const created = await createTask(sql, boss, request, jobLimits);
  if (created.outcome !== 'created') throw new Error(`task not created: ${created.outcome}`);
  const { taskId } = created.task;
  const rows = await sql<{ id: string }[]>`
    select id from asl_schema.extraction_result where task_id = ${taskId} order by id`;
  return { taskId, projectId, resultIds: rows.map((row) => row.id) };
}

/** The same queue, but one of its methods does something else. */
export function withMethod<K extends 'insert' | 'complete'>(boss: PgBoss, name: K, method: PgBoss[K]): PgBoss {
  return new Proxy(boss, {
    get(target, key) {
      if (key === name) return method;
      const value: unknown = Reflect.get(target, key);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

export type Fetched = { job: HeldJob; delivery: Delivery };

/** Takes up to `count` jobs from the queue, as a worker does. */
export async function fetchDeliveries({ sql, boss, mode = SCATTER }: TestBench, count: number): Promise<Fetched[]> {
  const jobs = await boss.fetch<ExtractJob>(mode.queue, { batchSize: count, ...on(sql) });
  return jobs.map(({ id, retryCount, data }) => ({
    job: { id, retryCount },
    delivery: { ...data, jobId: id, delivery: retryCount },
  }));
}

export type HeldClaim = { job: HeldJob; claim: Claim };

/** Takes and claims `count` results, and fails unless it gets all of them. */
export async function takeResults(bench: TestBench, count: number, maxAttempts = 4): Promise<HeldClaim[]> {
  const fetched = await fetchDeliveries(bench, count);
  const deliveries = fetched.map(({ delivery }) => delivery);
  const outcomes = await claimResults(bench.sql, {
    deliveries,
    worker: 'test',
    maxAttempts,
    mode: bench.mode ?? SCATTER,
  });
  const held = fetched.flatMap(({ job }, i) => {
    const outcome = outcomes[i];
    return outcome?.outcome === 'claimed' ? [{ job, claim: outcome }] : [];
  });
  if (held.length !== count) throw new Error(`claimed ${held.length} of ${count} results`);
  return held;
}

/** As above, for one. */
export async function takeResult(bench: TestBench, maxAttempts = 4): Promise<HeldClaim> {
  const [held] = await takeResults(bench, 1, maxAttempts);
  if (held === undefined) throw new Error('nothing claimed');
  return held;
}

/** Makes pg-boss see that the holder of a job has been silent for too long, and act on it. */
export async function lapseHeartbeat({ sql, boss, mode = SCATTER }: TestBench, jobId: string): Promise<void> {
  await sql`update pgboss.job set heartbeat_on = now() - interval '1 hour' where id = ${jobId}`;
  // The monitor looks at each queue once in a while: now.
  await sql`update pgboss.queue set monitor_on = null, monitor_claim_on = null where name = ${mode.queue}`;
  await boss.supervise(mode.queue);
}

/** The whole row of a result, and the history of its attempts, as the database has them. */
export async function readResult(sql: Sql, resultId: string) {
  const [row] = await sql`select * from asl_schema.extraction_result where id = ${resultId}`;
  const attempts = await sql`
    select attempt, outcome, error_code, error_message
    from asl_schema.extraction_attempt
    where result_id = ${resultId}
    order by attempt`;
  if (row === undefined) throw new Error(`no result ${resultId}`);
  return { row, attempts: [...attempts] };
}

/** The states of all jobs of one result, oldest first. */
export async function jobStates(sql: Sql, resultId: string): Promise<string[]> {
  const rows = await sql<{ state: string }[]>`
    select state::text from pgboss.job where data ->> 'resultId' = ${resultId} order by created_on, id`;
  return rows.map((row) => row.state);
}
