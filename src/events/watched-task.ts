/** A task as its watchers see it. */
export type WatchedTask = {
  /** Sent as `progress`, and at last as `end`. */
  progress: object;
  /** When it was closed, in milliseconds since 1970, which also names the closing: another one after a retry. */
  closedAtMs: number | undefined;
  /** What a `snapshot` has besides; on demand only, since it costs more to read. */
  details: object | undefined;
};

/** Reads a task, or undefined if there is no such task. */
export type ReadWatchedTask = (taskId: string, wanted: { details: boolean }) => Promise<WatchedTask | undefined>;
