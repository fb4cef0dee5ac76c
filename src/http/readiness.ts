import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { Sql } from '../db.ts';

const migrations = new URL('../../db/migrations/', import.meta.url);

/** What keeps the process from working, or undefined. */
export type Unready = { path: 'database' | 'schema' | 'queue'; message: string };

/**
 * Whether the database answers and has the schema that this code was written for: every migration of the repository, and
 * the version of pg-boss's own schema. More migrations than we know are no fault: another process may be newer.
 */
export async function checkReadiness(sql: Sql, withinMs: number): Promise<Unready[]> {
  const late = Promise.withResolvers<Unready[]>();
  const timer = setTimeout(() => {
    late.resolve([{ path: 'database', message: `did not answer within ${withinMs} ms` }]);
  }, withinMs);
  try {
    return await Promise.race([checkDatabase(sql), late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

async function checkDatabase(sql: Sql): Promise<Unready[]> {
  const [wanted, wantedQueue] = await Promise.all([migrationVersions(), queueVersion()]);
  try {
    const [tables] = await sql<{ schema: boolean; queue: boolean }[]>`
      select
        to_regclass('asl_schema.schema_migrations') is not null as schema,
        to_regclass('pgboss.version') is not null as queue`;
    const applied = tables?.schema
      ? await sql<{ version: string }[]>`select version from asl_schema.schema_migrations`
      : [];
    const queue = tables?.queue ? await sql<{ version: number }[]>`select version from pgboss.version` : [];
    const known = new Set(applied.map((row) => row.version));
    const missing = wanted.filter((version) => !known.has(version));
    const faults: Unready[] = [];
    if (missing.length > 0) faults.push({ path: 'schema', message: `${missing.length} migrations are not applied` });
    if (queue[0]?.version !== wantedQueue) {
      faults.push({ path: 'queue', message: `has version ${queue[0]?.version ?? 'none'}, not ${wantedQueue}` });
    }
    return faults;
  } catch {
    return [{ path: 'database', message: 'is not reachable' }];
  }
}

async function migrationVersions(): Promise<string[]> {
  const files = await readdir(migrations);
  return files.flatMap((file) => /^(\d+)_.*\.sql$/.exec(file)?.[1] ?? []);
}

/** pg-boss tells the version that the database has, but not the one that it needs; its package does. */
async function queueVersion(): Promise<number> {
  const path = fileURLToPath(new URL('../package.json', import.meta.resolve('pg-boss')));
  const manifest = JSON.parse(await readFile(path, 'utf8')) as { pgboss: { schema: number } };
  return manifest.pgboss.schema;
}
