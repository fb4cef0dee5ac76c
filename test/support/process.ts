import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';

const repository = fileURLToPath(new URL('../..', import.meta.url));

export type ServiceProcess = {
  child: ChildProcess;
  /** Where its API listens; empty without that role. */
  url: string;
  /** What it has written to standard error so far: its log, a JSON object a line. */
  log: () => string;
  /** Sends a signal and waits for the end; answers the exit code, or the signal that ended it. */
  stop: (signal?: NodeJS.Signals) => Promise<number | NodeJS.Signals>;
};

/** Starts the service as a process of its own, as an operator does, and waits until it says that it is there. */
export async function startProcess(databaseUrl: string, env: Record<string, string> = {}): Promise<ServiceProcess> {
  const child = spawn(process.execPath, ['--import', 'tsx', 'src/main.ts'], {
    cwd: repository,
    env: { ...process.env, PORT: '0', DATABASE_URL: databaseUrl, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let log = '';
  child.stderr.on('data', (chunk: Buffer) => {
    log += chunk;
  });
  const ended = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
  after(() => void child.kill('SIGKILL'));

  const first = await Promise.race([once(createInterface(child.stdout), 'line'), ended]);
  const [line] = first as [string | number | null];
  if (typeof line !== 'string') throw new Error(`the service ended before it was there:\n${log}`);
  return {
    child,
    url: /https?:\S+/.exec(line)?.[0] ?? '',
    log: () => log,
    async stop(signal = 'SIGTERM') {
      child.kill(signal);
      const [code, by] = await ended;
      return code ?? by ?? 'SIGKILL';
    },
  };
}
