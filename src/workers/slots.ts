import { createSemaphore } from '../extraction/semaphore.ts';

/** The places in which one process extracts. */
export type Slots = {
  /**
   * Resolves when a place is free, with the function that frees it again.
   *
   * @throws the signal's reason when it fires first
   */
  enter(signal: AbortSignal): Promise<() => void>;
  /** The same, but undefined when none was free within so many milliseconds. */
  enterWithin(ms: number, signal: AbortSignal): Promise<(() => void) | undefined>;
  /** How many wait for a place. */
  waiting(): number;
  /** How many results to hold beyond the places, so that a place that becomes free finds one that is ready. */
  ahead(): number;
  /** One has waited in vain for so long. */
  noteWait(ms: number): void;
};

/** What is claimed ahead is work for about this long: more than a claim takes, and too little to be missed by others. */
const AHEAD_MS = 50;
/** And never more than so many for each place: when a process is killed, each of them has spent an attempt. */
const AHEAD_EACH = 3;
/** How much the last extraction counts in the mean. */
const WEIGHT = 0.1;

/**
 * Short extractions would wait for their claim as long as they work: then some are claimed ahead. Long ones gain nothing by it,
 * and another process might start them at once: then none is. A process with one place never holds a second result.
 */
export function createSlots(count: number): Slots {
  const semaphore = createSemaphore(count);
  let waiting = 0;
  let meanMs = Number.POSITIVE_INFINITY;

  const note = (ms: number): void => {
    meanMs = Number.isFinite(meanMs) ? meanMs + WEIGHT * (ms - meanMs) : ms;
  };

  const timed = (leave: () => void): (() => void) => {
    const startedAt = performance.now();
    return () => {
      note(performance.now() - startedAt);
      leave();
    };
  };

  const counted = async <T>(wait: Promise<T>): Promise<T> => {
    waiting += 1;
    try {
      return await wait;
    } finally {
      waiting -= 1;
    }
  };

  return {
    enter: async (signal) => timed(await counted(semaphore.enter(signal))),
    async enterWithin(ms, signal) {
      const leave = await counted(semaphore.enterWithin(ms, signal));
      return leave === undefined ? undefined : timed(leave);
    },
    waiting: () => waiting,
    ahead: () => Math.floor((count - 1) * Math.min(AHEAD_EACH, AHEAD_MS / meanMs)),
    noteWait(ms) {
      meanMs = Math.max(meanMs, ms);
    },
  };
}
