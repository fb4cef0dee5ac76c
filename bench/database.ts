import postgres from 'postgres';
import { connect, type Sql } from '../src/db.ts';

const PREFIX = 'sheaf_bench_';

/** The URL of one of the bench's databases on the server of `serverUrl`. */
export function benchDatabaseUrl(serverUrl: string, name: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${PREFIX}${name.toLowerCase().replace(/\W+/g, '_')}`;
  return url.href;
}

/** An empty database; one of that name that an earlier run has left is dropped. Answers its URL. */
export async function createDatabase(serverUrl: string, name: string): Promise<string> {
  const url = benchDatabaseUrl(serverUrl, name);
  await dropDatabase(url);
  await asAdmin(url, async (sql, database) => void (await sql`create database ${sql(database)}`));
  return url;
}

export async function dropDatabase(url: string): Promise<void> {
  await asAdmin(url, async (sql, database) => void (await sql`drop database if exists ${sql(database)} with (force)`));
}

async function asAdmin(url: string, body: (sql: Sql, database: string) => Promise<void>): Promise<void> {
  const admin = new URL(url);
  const database = admin.pathname.slice(1);
  admin.pathname = '/postgres';
  const sql = connect(admin.href, { max: 1, applicationName: 'bench' });
  try {
    await body(sql, database);
  } finally {
    await sql.end();
  }
}

/** A transaction that has read and then does nothing, as a forgotten prompt does: no row that dies from now on can be removed. */
export async function holdIdleTransaction(url: string): Promise<() => Promise<void>> {
  // Not by our own door: it ends transactions that idle.
  const sql = postgres(url, { max: 1, connection: { idle_in_transaction_session_timeout: 0 } });
  const connection = await sql.reserve();
  await connection`begin isolation level repeatable read`;
  await connection`select count(*) from pg_class`;
  return async () => {
    await connection`rollback`;
    connection.release();
    await sql.end();
  };
}
