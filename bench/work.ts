import { setTimeout as sleep } from 'node:timers/promises';
import type { FieldValue } from '../src/extraction/engine.ts';

/** What every contender does with an item: the same wait, the same answer of some 200 bytes. */
export type Work = {
  run(): Promise<Answer>;
  /** When the first run since `reset` began, on the clock that all processes of a machine share; in nanoseconds. */
  firstStart(): bigint | undefined;
  reset(): void;
};

export type Answer = { run: FieldValue };

/** @param waitMs how long an item takes; 0 answers at once */
export function createWork(waitMs: number): Work {
  let runs = 0;
  let first: bigint | undefined;
  return {
    async run() {
      first ??= process.hrtime.bigint();
      runs += 1;
      if (waitMs > 0) await sleep(waitMs);
      const quote = `${process.pid}-${runs}`;
      const place = { quote, page: 1, start: 0, end: quote.length, method: 'stand-in', confidence: 1 };
      return { run: { value: quote, status: 'found', ...place } };
    },
    firstStart: () => first,
    reset() {
      first = undefined;
    },
  };
}
