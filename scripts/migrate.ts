import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { resolveBinary } from 'dbmate';
import { connect, type Sql, sqlState } from '../src/db.ts';
import { migrateQueue } from '../src/queue.ts';
import { Complaint, explain, isMain, repository, requireDatabaseUrl, runScript } from './cli.ts';

/**
 * Brings a database to the current schema, ours and the queue's, and creates the database if it is absent. Idempotent, and
 * safe to run from several processes at once.
 *
 * @returns the migrations that were applied, in order
 */
export async function migrateDatabase(databaseUrl: string): Promise<string[]> {
  const applied = await applyMigrations(databaseUrl);
  await migrateQueue(databaseUrl);
  return applied;
}

/** As migrateDatabase, but our own schema only. */
export async function applyMigrations(databaseUrl: string): Promise<string[]> {
  await createDatabase(databaseUrl);
  return await alone(databaseUrl, (sql) => runDbmate(databaseUrl, sql, ['migrate', '--strict'], /^Applied: (\S+)/));
}

/** Takes the latest of our migrations back. */
export async function rollBack(databaseUrl: string): Promise<string[]> {
  return await alone(databaseUrl, (sql) => runDbmate(databaseUrl, sql, ['rollback'], /^Rolled back: (\S+)/));
}

/** Creates the URL's database if it is absent, by way of the server's database `postgres`. */
async function createDatabase(databaseUrl: string): Promise<void> {
  const sql = open(databaseUrl);
  try {
    await sql`select 1`;
  } catch (error) {
    // 3D000: there is no such database.
    if (sqlState(error) !== '3D000') throw unreachable(databaseUrl, error);
    const url = new URL(databaseUrl);
    const name = decodeURIComponent(url.pathname.slice(1));
    url.pathname = '/postgres';
    const admin = open(url.href);
    try {
      await admin`create database ${admin(name)}`;
    } catch (fault) {
      // Another process created it meanwhile; a unique violation is the same news, a moment earlier.
      if (sqlState(fault) !== '42P04' && sqlState(fault) !== '23505') {
        throw new Complaint(`the database ${name} does not exist and cannot be created: ${explain(fault)}`);
      }
    } finally {
      await admin.end();
    }
  } finally {
    await sql.end();
  }
}

function unreachable(databaseUrl: string, error: unknown): Complaint {
  const { host, pathname } = new URL(databaseUrl);
  return new Complaint(`no connection to PostgreSQL (${host}${pathname}): ${explain(error)}`);
}

function open(databaseUrl: string): Sql {
  return connect(databaseUrl, { max: 1, applicationName: 'sheaf-migrate' });
}

/**
 * Runs `body` while no other process migrates this database: dbmate has no lock of its own. The lock is tried again and again
 * rather than waited for, since a waiting statement holds a snapshot, on which `create index concurrently` would wait in turn.
 */
async function alone<T>(databaseUrl: string, body: (sql: Sql) => Promise<T>): Promise<T> {
  const sql = open(databaseUrl);
  try {
    while (!(await sql`select pg_try_advisory_lock(hashtext('sheaf migrate')) as locked`)[0]?.locked) await sleep(100);
    // The lock ends with the connection.
    return await body(sql);
  } finally {
    await sql.end();
  }
}

async function runDbmate(databaseUrl: string, sql: Sql, command: string[], report: RegExp): Promise<string[]> {
  const args = [
    // Its own reading of .env would bring in what scripts/run.ts has decided otherwise.
    ...['--env-file', '/dev/null'],
    ...['--migrations-dir', join(repository, 'db', 'migrations')],
    ...['--migrations-table', 'asl_schema.schema_migrations'],
    '--no-dump-schema',
    ...command,
  ];
  // By the environment, not as an argument: arguments are anyone's to read.
  const env = { ...process.env, DATABASE_URL: await dbmateUrl(databaseUrl, sql) };
  try {
    const { stdout } = await promisify(execFile)(resolveBinary(), args, { env });
    return stdout.split('\n').flatMap((line) => report.exec(line)?.[1] ?? []);
  } catch (error) {
    const { stderr } = error as { stderr?: string };
    throw new Complaint(`dbmate ${command[0]}: ${stderr?.trim() || explain(error)}`);
  }
}

/**
 * The URL as dbmate's driver takes it. Left to itself that driver insists on TLS, where the service's own takes it as not
 * wanted; and it does not know `prefer` and `allow`, so what `sql` has come to is asked for by name.
 */
async function dbmateUrl(databaseUrl: string, sql: Sql): Promise<string> {
  const url = new URL(databaseUrl);
  const mode = url.searchParams.get('sslmode') ?? process.env.PGSSLMODE ?? 'disable';
  if (mode === 'prefer' || mode === 'allow') {
    const [row] = await sql`select ssl from pg_stat_ssl where pid = pg_backend_pid()`;
    url.searchParams.set('sslmode', row?.ssl ? 'require' : 'disable');
  } else {
    url.searchParams.set('sslmode', mode);
  }
  return url.href;
}

if (isMain(import.meta.url)) {
  await runScript(async () => {
    const [command, ...rest] = process.argv.slice(2);
    if (rest.length > 0 || (command !== undefined && command !== 'rollback')) {
      throw new Complaint('usage: scripts/migrate.ts [rollback]');
    }
    const url = requireDatabaseUrl();
    if (command === 'rollback') {
      const undone = await rollBack(url);
      process.stdout.write(
        undone.length > 0 ? undone.map((name) => `rolled back ${name}\n`).join('') : 'nothing to roll back\n',
      );
    } else {
      for (const name of await migrateDatabase(url)) process.stdout.write(`applied ${name}\n`);
      process.stdout.write('schema is current\n');
    }
    return 0;
  });
}
