import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Complaint, loadDotEnv, repository, runScript } from './cli.ts';
import { type EmbeddedPostgres, ensurePostgres } from './embedded-postgres.ts';

const usage = 'usage: scripts/run.ts [--test] -- command [argument...]';

/**
 * Runs a command with what it needs around it: the variables of `.env`, the Node of this repository first in PATH, and a
 * DATABASE_URL, for which the embedded PostgreSQL is started if none is given. With `--test` the server is TEST_DATABASE_URL's
 * if that is set.
 *
 * Exits with the command's code, or with 128 and the number of the signal that ended it.
 */
async function run(): Promise<number> {
  const words = process.argv.slice(2);
  const at = words.indexOf('--');
  const options = words.slice(0, at);
  const [file, ...args] = words.slice(at + 1);
  if (at < 0 || file === undefined || options.some((option) => option !== '--test')) throw new Complaint(usage);

  const signals = catchSignals();
  loadDotEnv();
  if (options.includes('--test') && process.env.TEST_DATABASE_URL) {
    process.env.DATABASE_URL = process.env.TEST_DATABASE_URL;
  }
  let server: EmbeddedPostgres | undefined;
  try {
    if (!process.env.DATABASE_URL) {
      server = await ensurePostgres();
      process.env.DATABASE_URL = server.url;
    }
    return signals.first() ?? (await runCommand(file, args, signals));
  } catch (error) {
    // A Ctrl-C that also ended a step of the set-up is no fault of that step. It is heard a moment later than the step's end.
    await sleep(20);
    const interrupted = signals.first();
    if (interrupted === undefined) throw error;
    return interrupted;
  } finally {
    await server?.stop();
  }
}

type Signals = {
  /** The exit code of the first signal so far. */
  first(): number | undefined;
  /** Where to pass signals on to from now on. */
  forward(to: ((signal: NodeJS.Signals) => void) | undefined): void;
};

/**
 * Catches what should end the command. One wish arrives twice when a whole process group is told, from the sender and from
 * make: within a moment, the same signal counts once.
 */
function catchSignals(): Signals {
  const sameWishMs = 200;
  let first: number | undefined;
  let forward: ((signal: NodeJS.Signals) => void) | undefined;
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    let last = Number.NEGATIVE_INFINITY;
    process.on(signal, () => {
      const now = performance.now();
      const again = now - last < sameWishMs;
      last = now;
      if (again) return;
      first ??= 128 + constants.signals[signal];
      forward?.(signal);
    });
  }
  return {
    first: () => first,
    forward: (to) => {
      forward = to;
    },
  };
}

/**
 * The command leads a session and process group of its own. So Ctrl-C reaches it once, from here, and not a second time from
 * the terminal: to our service the second signal means "leave at once". And whatever the command leaves running is in its
 * group, and is ended with it.
 */
async function runCommand(file: string, args: readonly string[], signals: Signals): Promise<number> {
  const path = [join(repository, 'node_modules', '.bin'), process.env.PATH].join(delimiter);
  const child = spawn(file, args, { stdio: 'inherit', detached: true, env: { ...process.env, PATH: path } });
  const { pid } = child;
  signals.forward((signal) => child.kill(signal));
  const [code, signal] = await once(child, 'exit').catch((error: NodeJS.ErrnoException) => {
    throw new Complaint(error.code === 'ENOENT' ? `${file} is not a command here` : `${file}: ${error.message}`);
  });
  signals.forward(undefined);
  if (pid !== undefined) await endGroup(pid);
  return code ?? 128 + constants.signals[signal as NodeJS.Signals];
}

/** Ends what is left of a process group: kindly, and after a second for good. */
async function endGroup(group: number): Promise<void> {
  for (let waitedMs = 0; waitedMs <= 1000; waitedMs += 50) {
    try {
      process.kill(-group, waitedMs === 0 ? 'SIGTERM' : waitedMs < 1000 ? 0 : 'SIGKILL');
    } catch {
      return;
    }
    await sleep(50);
  }
}

await runScript(run);
