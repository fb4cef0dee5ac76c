import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { findPrograms } from '../../scripts/postgres/programs.ts';
import { until } from './waiting.ts';

/** A PostgreSQL of a test's own, to be stopped and started at will; its port stays the same. */
export type OwnServer = {
  /** Of its database `postgres`. */
  url: string;
  start(): Promise<void>;
  /** `immediate` is a crash: no session is told, and the next start recovers from the log. */
  stop(mode: 'fast' | 'immediate'): Promise<void>;
  /** Stops it and deletes its data. */
  remove(): Promise<void>;
};

/** Sets up a server with the embedded programs in a folder that is thrown away, as root or as an ordinary user. */
export async function ownServer(): Promise<OwnServer> {
  const home = await mkdtemp(join(tmpdir(), 'sheaf-postgres-'));
  const data = join(home, 'data');
  // Where root runs the tests, the server's user must pass.
  await chmod(home, 0o755);
  await mkdir(data, { mode: 0o700 });
  const programs = await findPrograms(data);
  if (programs.owner) await chown(data, programs.owner.uid, programs.owner.gid);
  const init = programs.command('initdb', [`--pgdata=${data}`, '--username=postgres', '--auth=trust', '--no-sync']);
  const made = spawnSync(init.file, init.args, { ...init.options, encoding: 'utf8' });
  if (made.status !== 0) throw new Error(`initdb: ${made.error ?? made.stderr}`);
  const port = await freePort();
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  let server: ChildProcess | undefined;
  // A test that breaks off must not leave it behind.
  const kill = (): void => void server?.kill('SIGQUIT');
  process.on('exit', kill);

  const stop = async (mode: 'fast' | 'immediate'): Promise<void> => {
    if (server === undefined) return;
    const ended = once(server, 'exit');
    server.kill(mode === 'fast' ? 'SIGINT' : 'SIGQUIT');
    await ended;
    server = undefined;
  };
  return {
    url,
    stop,
    async start() {
      const settings = [
        'listen_addresses=127.0.0.1',
        'unix_socket_directories=',
        'max_connections=200',
        'timezone=UTC',
      ];
      const { file, args, options } = programs.command('postgres', [
        ...['-D', data, '-p', String(port)],
        ...settings.flatMap((setting) => ['-c', setting]),
      ]);
      server = spawn(file, args, { ...options, stdio: 'ignore' });
      await until('the server to answer', () => answers(url), 60_000);
    },
    async remove() {
      await stop('immediate');
      process.off('exit', kill);
      await rm(home, { recursive: true, force: true });
    },
  };
}

async function answers(url: string): Promise<boolean> {
  const sql = postgres(url, { max: 1, fetch_types: false, connect_timeout: 5, onnotice: () => {} });
  try {
    await sql`select 1`;
    return true;
  } catch {
    return false;
  } finally {
    await sql.end({ timeout: 0 });
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
