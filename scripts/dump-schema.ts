import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { connect } from '../src/db.ts';
import { Complaint, explain, isMain, repository, requireDatabaseUrl, runScript } from './cli.ts';
import { applyMigrations } from './migrate.ts';

const schemaFile = join(repository, 'db', 'schema.sql');

/**
 * Writes db/schema.sql, or with `check` compares it: the schema that all migrations together make, as pg_dump tells it from a
 * scratch database. It is for reading and for review. The queue's own schema is its package's affair and stays out.
 *
 * pg_dump must be at least as new as the server; without one there is nothing to be done, and a check passes.
 */
async function dumpSchema(databaseUrl: string, check: boolean): Promise<number> {
  const url = new URL(databaseUrl);
  url.pathname = `/sheaf_schema_${randomBytes(6).toString('hex')}`;
  const server = new URL(databaseUrl);
  server.pathname = '/postgres';
  const admin = connect(server.href, { max: 1, applicationName: 'sheaf-dump-schema' });
  try {
    const [row] = await admin<{ major: number }[]>`select current_setting('server_version_num')::int / 10000 as major`;
    const pgDump = await findPgDump(row?.major ?? 0);
    if (pgDump === undefined) {
      const skipped = `no pg_dump of PostgreSQL ${row?.major} or newer`;
      if (!check) throw new Complaint(`db/schema.sql is not written: ${skipped}`);
      process.stdout.write(`db/schema.sql: skipped: ${skipped}\n`);
      return 0;
    }
    await applyMigrations(url.href);
    const schema = normalise(await dump(pgDump, url));
    if (check) return await compare(schema);
    await writeFile(schemaFile, schema);
    process.stdout.write('db/schema.sql is written\n');
    return 0;
  } finally {
    await admin`drop database if exists ${admin(url.pathname.slice(1))} with (force)`.catch(() => {});
    await admin.end();
  }
}

async function compare(schema: string): Promise<number> {
  const kept = (await readFile(schemaFile, 'utf8').catch(() => '')).split('\n');
  const made = schema.split('\n');
  const at = made.findIndex((line, index) => line !== kept[index]);
  if (at < 0 && kept.length === made.length) {
    process.stdout.write('db/schema.sql is what the migrations make\n');
    return 0;
  }
  const line = at < 0 ? made.length : at;
  process.stderr.write(
    `db/schema.sql is not what the migrations make; \`make schema\` writes it anew. Line ${line + 1}:\n` +
      `  in the file        ${kept[line] ?? '(end)'}\n  by the migrations  ${made[line] ?? '(end)'}\n`,
  );
  return 1;
}

/** A pg_dump of at least the given major version: the one in PATH, else one of Debian's side-by-side versions. */
async function findPgDump(major: number): Promise<string | undefined> {
  const debian = '/usr/lib/postgresql';
  const versions = (await readdir(debian).catch((): string[] => [])).sort((a, b) => Number(b) - Number(a));
  const folders = [
    ...(process.env.PATH ?? '').split(delimiter),
    ...versions.map((version) => join(debian, version, 'bin')),
  ];
  for (const folder of folders) {
    const path = join(folder, 'pg_dump');
    const version = await promisify(execFile)(path, ['--version']).catch(() => undefined);
    const found = Number(/(\d+)/.exec(version?.stdout ?? '')?.[1]);
    if (found >= major) return path;
  }
  return undefined;
}

async function dump(pgDump: string, url: URL): Promise<string> {
  // The password goes by the environment, not as an argument: arguments are anyone's to read.
  const env = { ...process.env, PGPASSWORD: decodeURIComponent(url.password) || process.env.PGPASSWORD };
  const open = new URL(url);
  open.password = '';
  const options = ['--schema-only', '--schema=asl_schema', '--no-owner', '--no-privileges', '--no-tablespaces'];
  try {
    const { stdout } = await promisify(execFile)(pgDump, [...options, open.href], { env, maxBuffer: 64 * 1024 * 1024 });
    return stdout;
  } catch (error) {
    throw new Complaint(`pg_dump: ${(error as { stderr?: string }).stderr?.trim() || explain(error)}`);
  }
}

/** Leaves out what depends on the versions of pg_dump and server: comments, session settings, psql's own commands. */
function normalise(text: string): string {
  const kept = text.split('\n').filter((line) => !/^(--|\\|SET |SELECT pg_catalog\.set_config)/.test(line));
  const body = kept
    .join('\n')
    .replace(/\n{3,}/g, '\n\n')
    .trim();
  return `-- The schema that db/migrations/ make together: written by \`make schema\`, for reading only.\n\n${body}\n`;
}

if (isMain(import.meta.url)) {
  await runScript(() => dumpSchema(requireDatabaseUrl(), process.argv.includes('--check')));
}
