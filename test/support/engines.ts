import type { ExtractionEngine, ExtractionInput, ExtractionOutput } from '../../src/extraction/engine.ts';

/** An engine whose papers end when and how the test says. */
export type ScriptedEngine = ExtractionEngine & {
  /** File names in the order in which their extraction began. */
  readonly started: string[];
  /** How many extractions run at this moment, and the most that ever did. */
  readonly running: { now: number; most: number };
};

/**
 * @param script decides over one extraction by its file name: an answer, a rejection, or a promise that ends later
 */
export function scriptedEngine(
  script: (filename: string, input: ExtractionInput, nth: number) => Promise<ExtractionOutput>,
): ScriptedEngine {
  const started: string[] = [];
  const running = { now: 0, most: 0 };
  return {
    started,
    running,
    async extract(input) {
      const nth = started.filter((name) => name === input.filename).length + 1;
      started.push(input.filename);
      running.now += 1;
      running.most = Math.max(running.most, running.now);
      try {
        return await script(input.filename, input, nth);
      } finally {
        running.now -= 1;
      }
    },
    async close() {},
  };
}

export const answer: ExtractionOutput = { data: {} };

/** A promise and the hands to end it. */
export function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void; reject: (error: unknown) => void } {
  return Promise.withResolvers<T>();
}

/** Never ends, until its signal fires. */
export function hang(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
}
