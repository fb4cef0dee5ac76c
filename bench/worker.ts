import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { WorkerSettings } from './contenders/contender.ts';

export type WorkerPlan = { contender: string; waitMs: number; settings: WorkerSettings };
export type Question = 'usage' | 'reset' | 'first' | 'stop';
export type Answer = { cpuMs?: number; memoryBytes?: number; firstStart?: string | undefined };

/** Some processes of one contender that work side by side. */
export type Workers = {
  /** Processor time so far, and resident memory, of all of them together. */
  usage(): Promise<{ cpuMs: number; memoryBytes: number }>;
  /** Forgets the first start. */
  reset(): Promise<void>;
  /** When the first of them began its first item since then, in nanoseconds of process.hrtime. */
  firstStart(): Promise<bigint | undefined>;
  stop(): Promise<void>;
};

/** The longest that a worker takes to stop before it is killed. */
const STOP_WITHIN_MS = 10_000;

const alive = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of alive) child.kill('SIGKILL');
});

/** Starts `count` processes and waits until each of them looks for work. */
export async function startWorkers(plan: WorkerPlan, count: number): Promise<Workers> {
  const children = await Promise.all(Array.from({ length: count }, () => startChild(plan)));
  const askAll = (question: Question): Promise<Answer[]> => Promise.all(children.map((child) => ask(child, question)));
  return {
    async usage() {
      const answers = await askAll('usage');
      const sum = (key: 'cpuMs' | 'memoryBytes') => answers.reduce((total, answer) => total + (answer[key] ?? 0), 0);
      return { cpuMs: sum('cpuMs'), memoryBytes: sum('memoryBytes') };
    },
    async reset() {
      await askAll('reset');
    },
    async firstStart() {
      const starts = (await askAll('first')).flatMap(({ firstStart }) => (firstStart ? [BigInt(firstStart)] : []));
      return starts.reduce<bigint | undefined>(
        (least, at) => (least === undefined || at < least ? at : least),
        undefined,
      );
    },
    async stop() {
      await Promise.all(children.map(stopChild));
    },
  };
}

async function startChild(plan: WorkerPlan): Promise<ChildProcess> {
  const child = fork(fileURLToPath(new URL('./worker-process.ts', import.meta.url)), {
    // Without tsx, whose start takes three times as long.
    execArgv: ['--experimental-strip-types', '--disable-warning=ExperimentalWarning'],
    env: {
      ...process.env,
      NODE_COMPILE_CACHE: join(tmpdir(), 'sheaf-compile-cache'),
      BENCH_WORKER: JSON.stringify(plan),
    },
  });
  alive.add(child);
  child.once('exit', () => alive.delete(child));
  await answerOf(child);
  return child;
}

async function ask(child: ChildProcess, question: Question): Promise<Answer> {
  child.send(question);
  return await answerOf(child);
}

async function answerOf(child: ChildProcess): Promise<Answer> {
  const ended = new AbortController();
  const exit = once(child, 'exit', { signal: ended.signal }).then(([code, signal]) => {
    throw new Error(`a worker ended with ${code ?? signal}`);
  });
  try {
    const [answer] = (await Promise.race([once(child, 'message', { signal: ended.signal }), exit])) as [Answer];
    return answer;
  } finally {
    ended.abort();
    exit.catch(() => {});
  }
}

async function stopChild(child: ChildProcess): Promise<void> {
  if (!alive.has(child)) return;
  const exit = once(child, 'exit');
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_WITHIN_MS);
  child.send('stop');
  await exit;
  clearTimeout(timer);
}
