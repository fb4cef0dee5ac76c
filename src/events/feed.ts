import type { Semaphore } from '../extraction/semaphore.ts';
import { describeError, type Logger } from '../log.ts';
import { createEnding } from './ending.ts';
import { endId, toFrame } from './frame.ts';
import type { HubLimits } from './hub-limits.ts';
import type { HeardEvent, Place, RecentEvents } from './recent-events.ts';
import { createRefresher } from './refresher.ts';
import { beginViewer, createViewer, type Owed, openViewer, type Stream, tendViewer, type Viewer } from './viewer.ts';
import type { ReadWatchedTask, WatchedTask } from './watched-task.ts';

export type FeedOptions = {
  taskId: string;
  read: ReadWatchedTask;
  recent: RecentEvents;
  limits: HubLimits;
  gate: Semaphore;
  signal: AbortSignal;
  log: Logger;
  /** The last client has gone. */
  onEmpty: () => void;
};

/** All clients of one task in this process, who share each read of it. */
export type Feed = {
  join(client: { from: Place | undefined; knownClosedAtMs: number | undefined; cut: () => void }): Viewer;
  /** Something was heard of the task: an event to send on, or only that it has changed. */
  hear(heard?: HeardEvent): void;
  /** Events may have been missed: everybody begins anew. */
  restart(): void;
  /** Looks after all clients, and reads again if it is time. */
  tend(nowMs: number): void;
  /** Ends all streams at once. */
  close(): void;
};

/** `nth` counts the reads of the feed. */
type Details = { fields: object; from: Place; nth: number; readAtMs: number };

export function createFeed({ taskId, read, recent, limits, gate, signal, log, onEmpty }: FeedOptions): Feed {
  const viewers = new Set<Viewer>();
  let state: WatchedTask | undefined;
  /** The last details read, for clients that come soon after; `from` is the place behind which their stream goes on. */
  let details: Details | undefined;
  let snapshot: { key: string; frame: Buffer } | undefined;
  /** How many reads have begun, and since which of them nothing may have been missed. */
  let reads = 0;
  let soundSince = 0;
  let failing = false;

  const readTask = async (): Promise<boolean> => {
    const nth = ++reads;
    const from = recent.end();
    const wanted = { details: isOwed() };
    const readAtMs = performance.now();
    try {
      const found = await read(taskId, wanted);
      failing = false;
      if (viewers.size === 0) return true;
      if (found === undefined) endUnknown();
      else show(found, { from, nth, readAtMs });
    } catch (error) {
      fail(error);
      return false;
    }
    if (isOwed()) refresher.request();
    return true;
  };
  const refresher = createRefresher({ read: readTask, intervalMs: limits.refreshMs, retryMs: 1000, gate, signal });

  const isOwed = (): boolean => [...viewers].some(({ owed }) => owed !== undefined);

  /** A new state: to those who have a stream as progress, if it is another; to the others as the snapshot they wait for. */
  const show = (found: WatchedTask, read: Omit<Details, 'fields'>): void => {
    const isNew = JSON.stringify(found.progress) !== JSON.stringify(state?.progress);
    const wasOpen = state !== undefined && state.closedAtMs === undefined;
    state = found;
    snapshot = undefined;
    if (found.details && read.nth >= soundSince) details = { fields: found.details, ...read };
    if (isNew) sendAll(toFrame({ event: 'progress', data: found.progress }));
    for (const viewer of viewers) if (viewer.owed) open(viewer, viewer.owed);
    ending.see(found.closedAtMs, wasOpen);
  };

  /** Begins a stream if the last details are new enough: not older than what the client has had already. */
  const open = (viewer: Viewer, owed: Owed): void => {
    if (state === undefined || details === undefined) return;
    if (details.nth < owed.minRead || details.from.seq < (owed.from?.seq ?? 0)) return;
    if (state.closedAtMs !== undefined && state.closedAtMs === viewer.knownClosedAtMs) {
      beginViewer(viewer, 'finished');
    } else {
      openViewer(viewer, toStream(state.progress, details));
      beginViewer(viewer, 'open');
    }
  };

  const toStream = (progress: object, { fields, from }: Details): Stream => ({
    readAt: from,
    end: recent.end(),
    after: (seq) => recent.after(seq, taskId),
    toSnapshot(id, resumed) {
      const key = `${id} ${resumed}`;
      if (snapshot?.key !== key) {
        snapshot = { key, frame: toFrame({ id, event: 'snapshot', data: { ...progress, resumed, ...fields } }) };
      }
      return snapshot.frame;
    },
  });

  const sendAll = (frame: Buffer): void => {
    for (const viewer of viewers) if (!viewer.owed && !viewer.ended) send(viewer, frame);
  };

  /** A client that is too slow for all of it gets what counts: a new snapshot when it has taken the last. */
  const send = (viewer: Viewer, frame: Buffer): boolean => {
    const fits = viewer.buffer.add(frame);
    if (!fits) beginAnew(viewer);
    return fits;
  };

  const beginAnew = (viewer: Viewer): void => {
    if (viewer.begun) viewer.buffer.clear();
    viewer.owed = { from: undefined, minRead: reads + 1 };
    refresher.request();
  };

  const ending = createEnding(limits.lingerMs, (closedAtMs) => {
    const frame = toFrame({ id: endId(recent.end().id, closedAtMs), event: 'end', data: state?.progress ?? {} });
    for (const viewer of viewers) {
      if (viewer.owed || viewer.ended || !send(viewer, frame)) continue;
      viewer.ended = true;
      viewer.buffer.end();
    }
  });

  /** There is no such task, or not any more. */
  const endUnknown = (): void => {
    for (const viewer of viewers) {
      if (!viewer.begun) beginViewer(viewer, 'unknown');
      viewer.ended = true;
      viewer.buffer.end();
    }
  };

  /** Streams that have begun wait for better times. */
  const fail = (error: unknown): void => {
    if (!failing) log.warn('a watched task could not be read', { taskId, error: describeError(error) });
    failing = true;
    for (const viewer of viewers) if (!viewer.begun) beginViewer(viewer, { error });
  };

  const leave = (viewer: Viewer): void => {
    viewers.delete(viewer);
    if (viewers.size > 0) return;
    refresher.stop();
    ending.stop();
    onEmpty();
  };

  return {
    join({ from, knownClosedAtMs, cut }) {
      // Whether it is still closed is asked anew: after an answer of no, the client would never come back.
      const owed = { from, minRead: knownClosedAtMs === undefined ? 0 : reads + 1 };
      const viewer = createViewer({ owed, knownClosedAtMs, maxBytes: limits.clientBytes, cut }, leave);
      viewers.add(viewer);
      const isFresh = details !== undefined && performance.now() - details.readAtMs < limits.detailsMs;
      if (isFresh && !failing) open(viewer, owed);
      if (viewer.owed) refresher.request();
      else ending.see(state?.closedAtMs, false);
      return viewer;
    },
    hear(heard) {
      if (heard) sendAll(heard.toFrame());
      refresher.request();
    },
    restart() {
      soundSince = reads + 1;
      details = undefined;
      for (const viewer of viewers) if (!viewer.ended) beginAnew(viewer);
    },
    tend(nowMs) {
      for (const viewer of viewers) {
        const how = tendViewer(viewer, recent.end(), { ...limits, nowMs });
        if (how === 'cut') log.info('a client was cut off: it took nothing', { taskId });
      }
      refresher.requestAfter(limits.pollMs, nowMs);
    },
    close() {
      for (const viewer of viewers) {
        if (viewer.begun) viewer.buffer.close();
        else beginViewer(viewer, 'closed');
      }
    },
  };
}
