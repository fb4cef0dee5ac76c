import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { isDatabaseAway, type Sql, sqlState } from '../src/db.ts';
import { Complaint, explain, isMain, runScript } from './cli.ts';
import { prepareData, prepareHome } from './postgres/data-directory.ts';
import { dataDirectory, logFile, passwordFile } from './postgres/places.ts';
import { elsewhere, findPrograms } from './postgres/programs.ts';
import { readServer, type Server, shutDown, startServer } from './postgres/server.ts';

/** A server in use. `stop` ends the use, and the server with it unless another command uses it too. */
export type EmbeddedPostgres = {
  /** The connection URL of the database `sheaf`, as superuser. */
  url: string;
  stop(): Promise<void>;
};

const startTimeoutMs = 60_000;

/**
 * Gives the repository's private PostgreSQL, setting it up and starting it as needed. Its data is in `.data/postgres` and
 * outlives the server; it listens on a free port of 127.0.0.1 only.
 *
 * Commands share one server: `make dev` in one terminal and `make test` in another. Each holds a shared advisory lock on a
 * connection of its own while it uses the server, and the last to leave, which gets that lock exclusively, stops it. The
 * connection of a command that was killed is gone with it, so its server is found, used and stopped by the next one.
 *
 * @throws Complaint saying what is wrong and what to do
 */
export async function ensurePostgres(): Promise<EmbeddedPostgres> {
  await prepareHome();
  const programs = await findPrograms(dataDirectory);
  await prepareData(programs);

  const deadline = Date.now() + startTimeoutMs;
  let fault = 'it did not say why';
  while (Date.now() < deadline) {
    const server = readServer();
    if (!server) {
      fault = (await startServer(programs, deadline)) ?? fault;
    } else if (server.status === 'ready') {
      const use = await takeUse(server).catch((error: unknown) => {
        if (!isDatabaseAway(error)) throw error;
        fault = explain(error);
      });
      if (use) return use;
    }
    // Starting, recovering, or about to be gone: another look settles it.
    await sleep(50);
  }
  throw new Complaint(
    `PostgreSQL did not start within ${startTimeoutMs / 1000} s: ${fault}. See ${logFile}. ${elsewhere}`,
  );
}

/** Stops the server, whoever uses it. Answers whether there was one. */
export async function stopPostgres(): Promise<boolean> {
  const server = readServer();
  if (!server) return false;
  await shutDown(server.pid);
  return true;
}

// Any number that nothing else in this server takes a lock on.
const useLock = 7_433_201;

/**
 * Joins the users of a running server.
 *
 * Leaving gives the shared lock back first and only then asks for the exclusive one: of two that leave at once, the later to
 * ask gets it. A command that comes while the last one leaves waits for the lock, and then loses its connection or gets the
 * server to itself.
 */
async function takeUse(server: Server): Promise<EmbeddedPostgres> {
  const password = await readFile(passwordFile, 'utf8');
  const url = (database: string) => `postgres://postgres:${password}@127.0.0.1:${server.port}/${database}`;
  const sql = postgres(url('postgres'), {
    max: 1,
    connect_timeout: 10,
    // The connection is the lock: it must not be renewed.
    max_lifetime: 0,
    idle_timeout: 0,
    // Its own first query, whose failure it would leave uncaught: the server may be just about to stop.
    fetch_types: false,
    connection: { application_name: 'sheaf-scripts' },
    onnotice: () => {},
  });
  try {
    await sql`select pg_advisory_lock_shared(${useLock})`;
    await createDatabase(sql, 'sheaf');
  } catch (error) {
    await sql.end({ timeout: 0 });
    throw error;
  }
  const stop = async (): Promise<void> => {
    try {
      await sql`select pg_advisory_unlock_shared(${useLock})`;
      const [row] = await sql<{ last: boolean }[]>`select pg_try_advisory_lock(${useLock}) as last`;
      if (row?.last) await shutDown(server.pid);
    } catch (error) {
      // Somebody has stopped it already: nothing is left to do.
      if (!isDatabaseAway(error)) throw error;
    } finally {
      await sql.end({ timeout: 1 });
    }
  };
  return { url: url('sheaf'), stop };
}

async function createDatabase(sql: Sql, name: string): Promise<void> {
  const exists = await sql`select 1 from pg_database where datname = ${name}`;
  if (exists.length > 0) return;
  await sql`create database ${sql(name)}`.catch((error: unknown) => {
    // Another command created it meanwhile; a unique violation is the same news, a moment earlier.
    if (sqlState(error) !== '42P04' && sqlState(error) !== '23505') throw error;
  });
}

if (isMain(import.meta.url)) {
  await runScript(async () => {
    if (process.argv[2] !== 'stop') throw new Complaint('usage: scripts/embedded-postgres.ts stop');
    process.stdout.write((await stopPostgres()) ? 'PostgreSQL is stopped\n' : 'PostgreSQL is not running\n');
    return 0;
  });
}
