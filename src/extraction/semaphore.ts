/** Lets so many in at a time, in the order of arrival. For one process; limits over all processes are the database's. */
export type Semaphore = {
  /**
   * Resolves when there is room, with the function that makes room again.
   *
   * @throws the signal's reason when it fires first; the place in the queue is then given up
   */
  enter(signal: AbortSignal): Promise<() => void>;
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

  return {
    enter(signal) {
      signal.throwIfAborted();
      if (free > 0) {
        free -= 1;
        return Promise.resolve(once(leave));
      }
      return new Promise((resolve, reject) => {
        const turn = (): void => {
          signal.removeEventListener('abort', giveUp);
          resolve(once(leave));
        };
        const giveUp = (): void => {
          waiting.delete(turn);
          reject(signal.reason);
        };
        signal.addEventListener('abort', giveUp, { once: true });
        waiting.add(turn);
      });
    },
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
