import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { after, afterEach } from 'node:test';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { migrateDatabase } from '../../scripts/migrate.ts';
import { connect, type Sql } from '../../src/db.ts';

const migrations = new URL('../../db/migrations/', import.meta.url);
const shapedBy = ['../../src/queue.ts', '../../package-lock.json'];

export type TestDatabase = { sql: Sql; url: string; name: string };

/**
 * Gives the calling test file a database of its own, cloned from a migrated template, with real commits: NOTIFY, pg-boss and
 * races need them. It is dropped when all tests of the file pass, and kept and named when one fails.
 *
 * The server is TEST_DATABASE_URL's, or DATABASE_URL's; the database that the URL names is never touched.
 */
export async function openTestDatabase(file: string): Promise<TestDatabase> {
  const server = process.env.TEST_DATABASE_URL || process.env.DATABASE_URL;
  if (!server) throw new Error('tests need a PostgreSQL server: run them with `make test`, or set TEST_DATABASE_URL');
  const admin = postgres(withDatabase(server, 'postgres'), { max: 1, onnotice: () => {} });
  const template = await prepareTemplate(admin, server);

  const stem = basename(fileURLToPath(file))
    .replace(/\.test\.ts$/, '')
    .replace(/\W+/g, '_');
  const name = `sheaf_test_${stem}_${process.pid}_${Date.now().toString(36)}`.slice(-60);
  await admin`create database ${admin(name)} template ${admin(template)}`;
  const url = withDatabase(server, name);
  const sql = connect(url, { max: 20, applicationName: 'sheaf-test' });

  let failed = false;
  afterEach((context) => {
    if (!('passed' in context) || context.passed === false) failed = true;
  });
  after(async () => {
    await sql.end({ timeout: 5 });
    if (failed) process.stderr.write(`kept for a look: database ${name}\n`);
    else await admin`drop database if exists ${admin(name)} with (force)`;
    await admin.end({ timeout: 5 });
  });
  return { sql, url, name };
}

/** Builds the template once for all files of a run, and for later runs until a migration changes. */
async function prepareTemplate(admin: Sql, server: string): Promise<string> {
  const hash = createHash('sha256');
  const files = (await readdir(migrations)).sort().map((file) => new URL(file, migrations));
  for (const file of [...files, ...shapedBy.map((path) => new URL(path, import.meta.url))]) {
    hash.update(await readFile(file));
  }
  const template = `sheaf_test_template_${hash.digest('hex').slice(0, 16)}`;
  const exists = async (): Promise<boolean> =>
    (await admin`select 1 from pg_database where datname = ${template}`).length > 0;
  if (await exists()) return template;

  // Test files run in processes of their own: one of them builds, the others wait for the lock.
  await admin`select pg_advisory_lock(hashtext(${template}))`;
  try {
    if (await exists()) return template;
    // Built under another name, so that a build that was killed is never taken for a template.
    const draft = `${template}_draft`;
    await admin`drop database if exists ${admin(draft)} with (force)`;
    await migrateDatabase(withDatabase(server, draft));
    await admin`alter database ${admin(draft)} rename to ${admin(template)}`;
    return template;
  } finally {
    await admin`select pg_advisory_unlock(hashtext(${template}))`;
  }
}

function withDatabase(server: string, name: string): string {
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}
