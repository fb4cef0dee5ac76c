import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { KillPlan, Word } from './child.ts';

const repository = fileURLToPath(new URL('../..', import.meta.url));

export type CrashProcess = {
  child: ChildProcess;
  pid: number;
  /** Where its API listens; empty without that role. */
  url: string;
  /** Every extraction that it began. */
  runs: { filename: string; run: string }[];
  /** When it killed itself, by the clock of this machine; undefined while it has not. */
  killedAtMs: () => number | undefined;
  log: () => string;
  /** The exit code, or the signal that ended it. */
  ended: Promise<number | NodeJS.Signals>;
  signal: (signal: NodeJS.Signals) => void;
};

/** As short as the service allows, so that a test need not wait long for what takes a lapsed heartbeat. */
export const QUICK = {
  HEARTBEAT_SECONDS: '10',
  TAKEOVER_SECONDS: '12',
  AGGREGATOR_INTERVAL_SECONDS: '1',
  POLL_INTERVAL_MS: '200',
  RETRY_DELAY_SECONDS: '0',
  RETRY_DELAY_MAX_SECONDS: '1',
  DATABASE_POOL_SIZE: '3',
  PORT: '0',
};

/** Longer than a process waits for its database to come back. */
const STOP_WITHIN_MS = 120_000;

const alive = new Set<ChildProcess>();
process.on('exit', killAll);

/** Ends every process that was started here, also those that are stopped. For `after`. */
export function killAll(): void {
  for (const child of alive) child.kill('SIGKILL');
}

export type CrashOptions = { entry?: string; crashAt?: KillPlan; env?: Record<string, string> };

/** Starts the service as a process of its own, and waits until it says that it is there, or is dead. */
export async function startCrashProcess(databaseUrl: string, options: CrashOptions = {}): Promise<CrashProcess> {
  const { entry = 'test/crash/child.ts', crashAt, env } = options;
  // Without tsx, whose start takes three times as long: what is started by the dozen must be there soon.
  const types = ['--experimental-strip-types', '--disable-warning=ExperimentalWarning'];
  const child = spawn(process.execPath, [...types, entry], {
    cwd: repository,
    env: {
      ...process.env,
      NODE_COMPILE_CACHE: join(tmpdir(), 'sheaf-compile-cache'),
      ...QUICK,
      DATABASE_URL: databaseUrl,
      ...(crashAt ? { CRASH_AT: JSON.stringify(crashAt) } : {}),
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  alive.add(child);
  let log = '';
  let killedAtMs: number | undefined;
  child.stderr.on('data', (chunk: Buffer) => {
    log += chunk;
  });
  const runs: CrashProcess['runs'] = [];
  const started = Promise.withResolvers<string>();
  createInterface(child.stdout).on('line', (line) => {
    const word = JSON.parse(line) as Word;
    if (word.event === 'started') started.resolve(word.url);
    else if (word.event === 'run') runs.push(word);
    else {
      killedAtMs = word.atMs;
      // One that stops itself before it has said that it is there will never say it.
      started.resolve('');
    }
  });
  // `close` rather than `exit`: by then all that it has said has arrived.
  const ended = once(child, 'close').then(([code, signal]) => {
    alive.delete(child);
    return (code ?? signal ?? 'SIGKILL') as number | NodeJS.Signals;
  });
  const url = await Promise.race([started.promise, ended]);
  if (typeof url !== 'string' || (url.startsWith('SIG') && killedAtMs === undefined)) {
    throw new Error(`the process ended before it was there (${url}):\n${log}`);
  }
  return {
    child,
    pid: child.pid ?? 0,
    url,
    runs,
    killedAtMs: () => killedAtMs,
    log: () => log,
    ended,
    signal(signal) {
      child.kill(signal);
      // A stop that never ends must fail its test, not keep it waiting.
      if (signal === 'SIGTERM') setTimeout(() => child.kill('SIGKILL'), STOP_WITHIN_MS).unref();
    },
  };
}
