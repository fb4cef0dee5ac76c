/** A signal that fires when an outer one does, or when time is over; `end` takes back its timer and its listener. */
export type Deadline = { signal: AbortSignal; end(): void };

/** Node's timers fire at once when they are set for longer. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * @param timeoutMs how long the work may take
 * @param late makes the reason that the signal fires with when time is over
 */
export function startDeadline(outer: AbortSignal, timeoutMs: number, late: () => Error): Deadline {
  const controller = new AbortController();
  const giveUp = (): void => controller.abort(outer.reason);
  const timer = setTimeout(() => controller.abort(late()), Math.min(timeoutMs, MAX_TIMER_MS));
  outer.addEventListener('abort', giveUp, { once: true });
  if (outer.aborted) giveUp();
  return {
    signal: controller.signal,
    end() {
      clearTimeout(timer);
      outer.removeEventListener('abort', giveUp);
    },
  };
}

/** Waits, unless the signal fires: then it throws the signal's reason at once. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const giveUp = (): void => reject(signal.reason);
  const timer = setTimeout(resolve, ms);
  signal.addEventListener('abort', giveUp, { once: true });
  try {
    await promise;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', giveUp);
  }
}
