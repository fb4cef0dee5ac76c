import type { Semaphore } from '../extraction/semaphore.ts';

export type Refresher = {
  /** Asks for a read soon; many askers share one. One that asks while a read runs gets another after it. */
  request(): void;
  /** Asks if the last read began longer ago than this. */
  requestAfter(ms: number, nowMs: number): void;
  stop(): void;
};

export type RefresherOptions = {
  /** One read. False when it failed. */
  read: () => Promise<boolean>;
  /** Least time between the beginnings of two reads. A read that takes long has ten times its own length. */
  intervalMs: number;
  /** After a read that failed, instead. */
  retryMs: number;
  /** How many may read at a time. */
  gate: Semaphore;
  signal: AbortSignal;
};

/** Owns when a watched task is read: however many events and clients ask for it, a bounded number of times. */
export function createRefresher({ read, intervalMs, retryMs, gate, signal }: RefresherOptions): Refresher {
  let wanted = false;
  let reading = false;
  let stopped = false;
  let timer: NodeJS.Timeout | undefined;
  let startedAtMs = Number.NEGATIVE_INFINITY;
  let nextAtMs = 0;

  const request = (): void => {
    wanted = true;
    if (reading || stopped || timer !== undefined) return;
    const waitMs = nextAtMs - performance.now();
    if (waitMs <= 0) return void run();
    timer = setTimeout(() => {
      timer = undefined;
      void run();
    }, waitMs).unref();
  };

  const run = async (): Promise<void> => {
    reading = true;
    const leave = await gate.enter(signal).catch(() => undefined);
    if (leave !== undefined && !stopped) {
      wanted = false;
      startedAtMs = performance.now();
      const ok = await read();
      const tookMs = performance.now() - startedAtMs;
      nextAtMs = startedAtMs + (ok ? Math.max(intervalMs, 10 * tookMs) : tookMs + retryMs);
    }
    leave?.();
    reading = false;
    if (wanted && !signal.aborted) request();
  };

  return {
    request,
    requestAfter(ms, nowMs) {
      if (nowMs - startedAtMs > ms) request();
    },
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}
