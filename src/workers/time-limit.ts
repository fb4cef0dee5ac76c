/** A limit on the time that an attempt works; waiting is not counted. */
export type TimeLimit = {
  /** Fires when the time is used up, or with the reason of `stop`. */
  signal: AbortSignal;
  /** Stops the clock until `wait` ends, however it ends. */
  whileWaiting<T>(wait: Promise<T>): Promise<T>;
  /** Ends the clock: the signal will not fire any more. */
  clear(): void;
};

/**
 * @param limitMs how long the work may take, waits left out
 * @param stop ends the work earlier: the signal fires with its reason
 */
export function startTimeLimit(limitMs: number, stop?: AbortSignal): TimeLimit {
  // One controller for both: AbortSignal.any costs more than all else here, and each extraction needs one.
  const controller = new AbortController();
  const forward = (): void => controller.abort(stop?.reason);
  if (stop?.aborted) forward();
  stop?.addEventListener('abort', forward, { once: true });
  let leftMs = limitMs;
  let runningSince = 0;
  let waits = 0;
  let timer: NodeJS.Timeout | undefined;

  const run = (): void => {
    runningSince = performance.now();
    timer = setTimeout(() => controller.abort(new Error(`took longer than ${limitMs} ms`)), leftMs);
  };
  const pause = (): void => {
    clearTimeout(timer);
    leftMs = Math.max(0, leftMs - (performance.now() - runningSince));
  };
  run();
  let cleared = false;

  return {
    signal: controller.signal,
    async whileWaiting(wait) {
      if (waits++ === 0) pause();
      try {
        return await wait;
      } finally {
        if (--waits === 0 && !cleared) run();
      }
    },
    clear() {
      cleared = true;
      stop?.removeEventListener('abort', forward);
      clearTimeout(timer);
    },
  };
}
