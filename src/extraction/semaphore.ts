/** Lets so many in at a time, in the order of arrival. For one process; limits over all processes are the database's. */
export type Semaphore = {
  /**
   * Resolves when there is room, with the function that makes room again.
   *
   * @throws the signal's reason when it fires first; the place in the queue is then given up
   */
  enter(signal: AbortSignal): Promise<() => void>;
  /**
   * The same, but undefined when there was no room within so many milliseconds.
   *
   * @throws the signal's reason when it fires first
   */
  enterWithin(ms: number, signal: AbortSignal): Promise<(() => void) | undefined>;
};

export function createSemaphore(places: number): Semaphore {
  let free = places;
  const waiting = new Set<() => void>();

  const leave = (): void => {
    const [next] = waiting;
    if (next === undefined) {
      free += 1;
      return;
    }
    waiting.delete(next);
    next();
  };

  const enter = async (signal: AbortSignal, withinMs?: number): Promise<(() => void) | undefined> => {
    signal.throwIfAborted();
    if (free > 0) {
      free -= 1;
      return once(leave);
    }
    return await new Promise((resolve, reject) => {
      const end = (): void => {
        waiting.delete(turn);
        clearTimeout(timer);
        signal.removeEventListener('abort', giveUp);
      };
      const turn = (): void => {
        end();
        resolve(once(leave));
      };
      const giveUp = (): void => {
        end();
        reject(signal.reason);
      };
      const tire = (): void => {
        end();
        resolve(undefined);
      };
      const timer = withinMs === undefined ? undefined : setTimeout(tire, withinMs);
      signal.addEventListener('abort', giveUp, { once: true });
      waiting.add(turn);
    });
  };

  return {
    enter: async (signal) => (await enter(signal)) as () => void,
    enterWithin: (ms, signal) => enter(signal, ms),
  };
}

function once(action: () => void): () => void {
  let done = false;
  return () => {
    if (done) return;
    done = true;
    action();
  };
}
