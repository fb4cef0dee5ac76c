export type Ending = {
  /** Looks at when the task was closed, if it is. `wasOpen`: it has been seen open until now. */
  see(closedAtMs: number | undefined, wasOpen: boolean): void;
  stop(): void;
};

/**
 * When the streams of a closed task end: at once if it has been closed for long, else after a moment, since the last words
 * about results are gathered by their workers and may come after the word of the closing.
 *
 * @param end ends the streams that have not ended yet
 */
export function createEnding(lingerMs: number, end: (closedAtMs: number) => void): Ending {
  let current: { closedAtMs: number; due: boolean; timer?: NodeJS.Timeout } | undefined;

  const begin = (closedAtMs: number, isFresh: boolean): void => {
    const begun: typeof current = { closedAtMs, due: !isFresh };
    current = begun;
    if (!isFresh) return;
    begun.timer = setTimeout(() => {
      begun.due = true;
      end(closedAtMs);
    }, lingerMs).unref();
  };

  const stop = (): void => {
    clearTimeout(current?.timer);
    current = undefined;
  };

  return {
    see(closedAtMs, wasOpen) {
      // Opened again, or closed once more.
      if (current?.closedAtMs !== closedAtMs) stop();
      if (closedAtMs === undefined) return;
      if (current === undefined) begin(closedAtMs, wasOpen || Date.now() - closedAtMs < 10 * lingerMs);
      if (current?.due) end(closedAtMs);
    },
    stop,
  };
}
