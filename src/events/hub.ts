import type { Sql } from '../db.ts';
import { createSemaphore } from '../extraction/semaphore.ts';
import { describeError, type Logger } from '../log.ts';
import { sendPayloads } from './announce.ts';
import { createFeed, type Feed } from './feed.ts';
import { parseEventId } from './frame.ts';
import { HUB_LIMITS, type HubLimits } from './hub-limits.ts';
import { emptyPayload, readPayload } from './payload.ts';
import { createRecentEvents } from './recent-events.ts';
import { EVENT_CHANNEL } from './task-event.ts';
import type { Viewer } from './viewer.ts';
import type { ReadWatchedTask } from './watched-task.ts';

export type WatchOutcome =
  | { outcome: 'open'; pieces: Viewer['buffer'] }
  /** The client has been told of the end before. */
  | { outcome: 'finished' }
  | { outcome: 'unknown' }
  /** The process is stopping. */
  | { outcome: 'closed' };

/** The live streams of one process: hears what all processes say of all tasks, and tells its clients. */
export type Hub = {
  /**
   * Opens a stream on a task. `lastEventId` is what the client says that it has had; `cut` breaks its connection off.
   *
   * @throws what reading the task throws
   */
  watch(taskId: string, client: { lastEventId: string | undefined; cut: () => void }): Promise<WatchOutcome>;
  /** Ends all streams at once; clients come back to another process. */
  close(): void;
};

export type HubOptions = { sql: Sql; read: ReadWatchedTask; log: Logger; limits?: Partial<HubLimits> };

/**
 * Starts to listen, on a connection that comes back by itself and ends with the pool. Each time it comes back, words may have
 * been missed: then nobody can go on from before, and everybody watching begins anew with a snapshot.
 */
export async function startHub(options: HubOptions): Promise<Hub> {
  const { sql, read, log } = options;
  const limits = { ...HUB_LIMITS, ...options.limits };
  const recent = createRecentEvents({ keepMs: limits.keepMs, maxBytes: limits.keepBytes });
  const feeds = new Map<string, Feed>();
  const gate = createSemaphore(limits.readers);
  const closing = new AbortController();
  const { signal } = closing;
  let lastWordAtMs = 0;

  const hear = (text: string): void => {
    if (signal.aborted) return;
    const payload = readPayload(text);
    if (payload === undefined) return;
    lastWordAtMs = performance.now();
    for (const heard of recent.add(payload, Buffer.byteLength(text), lastWordAtMs))
      feeds.get(heard.event.taskId)?.hear(heard);
    for (const event of payload.events) if (event?.type === 'task') feeds.get(event.taskId)?.hear();
  };

  const listening = (): void => {
    if (signal.aborted) return;
    recent.clear();
    for (const feed of feeds.values()) feed.restart();
    mark();
  };

  /**
   * A word without content. It gives clients a place to go on from, and keeps a quiet connection from being given up for
   * dead, which would cost everybody a snapshot. Any process's mark serves all.
   */
  const mark = (): void => {
    lastWordAtMs = performance.now();
    sendPayloads(sql, [emptyPayload()]).catch((error) => log.debug('no mark sent', { error: describeError(error) }));
  };

  const tend = (): void => {
    const nowMs = performance.now();
    recent.prune(nowMs);
    for (const feed of feeds.values()) feed.tend(nowMs);
    if (feeds.size > 0 && nowMs - lastWordAtMs > limits.markMs) mark();
  };

  const feedOf = (taskId: string): Feed => {
    const known = feeds.get(taskId);
    if (known) return known;
    const onEmpty = (): void => void (feeds.get(taskId) === feed && feeds.delete(taskId));
    const feed = createFeed({ taskId, read, recent, limits, gate, signal, log, onEmpty });
    feeds.set(taskId, feed);
    return feed;
  };

  await sql.listen(EVENT_CHANNEL, hear, listening);
  const timer = setInterval(tend, limits.tendMs).unref();

  return {
    async watch(taskId, { lastEventId, cut }) {
      if (signal.aborted) return { outcome: 'closed' };
      const { place, closedAtMs } = parseEventId(lastEventId);
      const from = place === undefined ? undefined : recent.find(place);
      const viewer = feedOf(taskId).join({ from, knownClosedAtMs: closedAtMs, cut });
      const outcome = await viewer.beginning.promise;
      return outcome === 'open' ? { outcome, pieces: viewer.buffer } : { outcome };
    },
    close() {
      closing.abort();
      clearInterval(timer);
      for (const feed of feeds.values()) feed.close();
    },
  };
}
