import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

export type RedisServer = { url: string; pid: number; version: string; stop(): Promise<void> };

/**
 * A Redis of the bench's own, on a free port and in a directory that goes with it, or a sentence saying why there is none.
 * Its log is synced once a second, as BullMQ's guide to production asks for.
 */
export async function startRedis(): Promise<RedisServer | string> {
  try {
    createRequire(import.meta.url).resolve('ioredis');
  } catch {
    return 'the package ioredis is not installed';
  }
  const version = await redisVersion();
  if (version === undefined) return 'there is no redis-server on the PATH';
  const directory = await mkdtemp(join(tmpdir(), 'sheaf-bench-redis-'));
  const port = await freePort();
  const durability = ['--appendonly', 'yes', '--appendfsync', 'everysec', '--save', ''];
  const options = ['--port', String(port), '--bind', '127.0.0.1', '--dir', directory, ...durability];
  const child = spawn('redis-server', options, { stdio: 'ignore' });
  const ended = once(child, 'exit');
  process.on('exit', () => child.kill('SIGKILL'));
  while (!(await accepts(port))) await sleep(20);
  return {
    url: `redis://127.0.0.1:${port}`,
    pid: child.pid ?? 0,
    version,
    async stop() {
      child.kill('SIGTERM');
      await ended;
      await rm(directory, { recursive: true, force: true });
    },
  };
}

async function redisVersion(): Promise<string | undefined> {
  const child = spawn('redis-server', ['--version'], { stdio: ['ignore', 'pipe', 'ignore'] });
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk;
  });
  await once(child, 'close').catch(() => {});
  return /v=(\S+)/.exec(text)?.[1];
}

async function freePort(): Promise<number> {
  const server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  return await once(socket, 'connect')
    .then(() => true)
    .catch(() => false)
    .finally(() => socket.destroy());
}
