import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { open, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Complaint, explain } from '../cli.ts';
import { dataDirectory, logFile } from './places.ts';
import { hasId, isAlive, readStat } from './processes.ts';
import { elsewhere, type Programs } from './programs.ts';

const pidFile = join(dataDirectory, 'postmaster.pid');
const stopTimeoutMs = 60_000;

/** A server that runs. Its status is `ready` when it takes connections. */
export type Server = { pid: number; port: number; status: string };

/**
 * What the server says of itself in postmaster.pid, or undefined if none runs. A file left by a server that was killed is
 * told by its process, which is gone, or is none of PostgreSQL's: process ids come again, above all in containers.
 */
export function readServer(): Server | undefined {
  const lines = readPidFile().split('\n');
  const pid = Number(lines[0]);
  if (!pid || !isPostgres(pid)) return undefined;
  return { pid, port: Number(lines[3]), status: lines[7]?.trim() ?? 'starting' };
}

function readPidFile(): string {
  try {
    return readFileSync(pidFile, 'utf8');
  } catch {
    return '';
  }
}

function isPostgres(pid: number): boolean {
  // Without /proc, as on macOS, a live process is believed.
  return isAlive(pid) && (readStat(pid)?.includes('(postgres)') ?? true);
}

/**
 * Starts the server and waits until it is ready, or has given up: then the answer is its reason. When another command was
 * faster, that is one too: PostgreSQL itself sees to it that a data directory has one server.
 */
export async function startServer(programs: Programs, deadline: number): Promise<string | undefined> {
  await disownStalePid();
  const log = await open(logFile, 'a', 0o600);
  if (programs.owner) await log.chown(programs.owner.uid, programs.owner.gid);
  const { size } = await log.stat();
  const { file, args, options } = programs.command('postgres', [
    ...['-D', dataDirectory, '-p', String(await freePort())],
    ...['-c', 'listen_addresses=127.0.0.1'],
    // None: their paths have a length limit that a deep clone exceeds.
    ...['-c', 'unix_socket_directories='],
    ...['-c', 'max_connections=200'],
    ...['-c', 'timezone=UTC', '-c', 'log_timezone=UTC'],
  ]);
  // Detached, so that Ctrl-C in the terminal reaches our service alone, which needs the database to finish its work.
  const child = spawn(file, args, { ...options, detached: true, stdio: ['ignore', log.fd, log.fd] });
  let spawnFault: string | undefined;
  child.on('error', (error) => {
    spawnFault = explain(error);
  });
  child.unref();
  while (child.exitCode === null && child.signalCode === null && spawnFault === undefined && Date.now() < deadline) {
    const server = readServer();
    if (server?.pid === child.pid && server?.status === 'ready') break;
    await sleep(20);
  }
  await log.close();
  if (child.exitCode === null && child.signalCode === null && spawnFault === undefined) return undefined;
  const reason = spawnFault ?? (await readLastWords(size));
  const passing = reason.includes('postmaster.pid') || reason.includes('Address already in use') || readServer();
  if (passing) return reason;
  throw new Complaint(`PostgreSQL did not start: ${reason}\nSee ${logFile}. ${elsewhere}`);
}

/**
 * A server that was killed leaves its postmaster.pid. The next one refuses to start while any process of its user has that
 * id, whatever it is. So the id is replaced by one that no system gives; the rest stays, for by it the next server makes sure
 * that no session of the old one is left.
 */
async function disownStalePid(): Promise<void> {
  const text = readPidFile();
  const pid = Number(text.split('\n')[0]);
  if (pid && hasId(pid) && !isPostgres(pid)) await writeFile(pidFile, text.replace(/^\d+/, '999999999'));
}

/** The last words of a server that ended, from where its part of the log begins. */
async function readLastWords(from: number): Promise<string> {
  const text = (await readFile(logFile)).subarray(from).toString();
  const fatal = text.split('\n').filter((line) => /FATAL|PANIC|HINT|DETAIL|could not bind/.test(line));
  return (fatal.length > 0 ? fatal : text.trim().split('\n').slice(-3)).join('\n');
}

/** A port that is free now. It may be taken a moment later: then the server says so, and the next start asks again. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port for PostgreSQL');
  return address.port;
}

/** Ends the server's sessions and the server (a "fast" shutdown), and waits until it has written its last checkpoint. */
export async function shutDown(pid: number): Promise<void> {
  try {
    process.kill(pid, 'SIGINT');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ESRCH') return;
    throw new Complaint(`PostgreSQL (process ${pid}) belongs to another user: stop it as that user.`);
  }
  const deadline = Date.now() + stopTimeoutMs;
  // Its file rather than its process: a server whose parent was killed may stay a zombie where nobody collects it.
  while (readServer()?.pid === pid) {
    if (Date.now() > deadline) throw new Complaint(`PostgreSQL (process ${pid}) is still stopping. See ${logFile}.`);
    await sleep(20);
  }
}
