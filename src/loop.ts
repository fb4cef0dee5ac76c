import { describeError, type Logger } from './log.ts';

export type Loop = {
  /** Runs the step soon instead of at the end of the wait; while a step runs, once more after it. */
  wake(): void;
  /** Lets a running step finish, and runs no other. */
  stop(): Promise<void>;
};

export type LoopOptions = {
  name: string;
  /** Wait between two rounds that nobody woke. */
  intervalMs: number;
  /** Least wait between two rounds, however often it is woken: many wakes become one round. */
  minIntervalMs?: number;
  /** One round. It may answer in how many milliseconds the next is wanted, instead of after `intervalMs`. */
  step: () => Promise<number | undefined>;
  log: Logger;
};

/**
 * Owns sleeping, jitter, waking and stopping for a step that does one round and knows nothing of loops. A round that fails
 * is logged and tried again after the interval; it never ends the loop.
 */
export function startLoop(options: LoopOptions): Loop {
  const { intervalMs, minIntervalMs = 0, step, log } = options;
  let stopped = false;
  let woken = false;
  let endWait: (() => void) | undefined;

  const wait = (ms: number, wakeable: boolean): Promise<void> =>
    new Promise((resolve) => {
      if (stopped || (wakeable && woken)) return resolve();
      const timer = setTimeout(done, ms);
      function done(): void {
        clearTimeout(timer);
        endWait = undefined;
        resolve();
      }
      endWait = () => {
        if (stopped || wakeable) done();
      };
    });

  const run = async (): Promise<void> => {
    while (!stopped) {
      woken = false;
      let nextMs = intervalMs;
      try {
        nextMs = (await step()) ?? intervalMs;
      } catch (error) {
        log.error(`${options.name} failed`, { error: describeError(error) });
      }
      // Up to a tenth more, so that processes started together do not stay together.
      await wait(minIntervalMs, false);
      await wait(Math.max(0, nextMs * (1 + Math.random() / 10) - minIntervalMs), true);
    }
  };
  const running = run();

  return {
    wake() {
      woken = true;
      endWait?.();
    },
    async stop() {
      stopped = true;
      endWait?.();
      await running;
    },
  };
}
