import { type ClientBuffer, createClientBuffer } from './client-buffer.ts';
import { keepAliveFrame, retryFrame } from './frame.ts';
import type { HeardEvent, Place } from './recent-events.ts';

/** How a stream begins: with a snapshot, or not at all. */
export type Beginning = 'open' | 'finished' | 'unknown' | 'closed';

/** One client of one task. */
export type Viewer = {
  buffer: ClientBuffer;
  /** What it waits for before it gets anything; undefined: it has its snapshot, and gets events as they come. */
  owed: Owed | undefined;
  /** The closing of which an `end` has told it before. */
  knownClosedAtMs: number | undefined;
  /** Settled once it is known how its stream begins. */
  beginning: PromiseWithResolvers<Beginning>;
  begun: boolean;
  /** It was sent its `end`. */
  ended: boolean;
};

export type Owed = {
  /** Up to where it has had all events; undefined: it begins anew. */
  from: Place | undefined;
  /** Its snapshot must come from this read of the task or a later one. */
  minRead: number;
};

export type ViewerOptions = Pick<Viewer, 'knownClosedAtMs'> & { owed: Owed; maxBytes: number; cut: () => void };

export function createViewer(options: ViewerOptions, onGone: (viewer: Viewer) => void): Viewer {
  const { owed, knownClosedAtMs, maxBytes, cut } = options;
  const viewer: Viewer = {
    buffer: createClientBuffer({ maxBytes, cut, onGone: () => onGone(viewer) }),
    owed,
    knownClosedAtMs,
    beginning: Promise.withResolvers<Beginning>(),
    begun: false,
    ended: false,
  };
  viewer.buffer.add(retryFrame());
  return viewer;
}

/** Settles how the stream begins, or that it cannot; the first word counts. */
export function beginViewer(viewer: Viewer, how: Beginning | { error: unknown }): void {
  viewer.begun = true;
  if (typeof how === 'string') viewer.beginning.resolve(how);
  else viewer.beginning.reject(how.error);
  if (how !== 'open') void viewer.buffer.return();
}

/** What a viewer's stream is made of. */
export type Stream = {
  /** Behind what the snapshot's state holds. */
  readAt: Place;
  end: Place;
  after: (seq: number) => readonly HeardEvent[] | undefined;
  /** The snapshot for a client that goes on from the place with this id. */
  toSnapshot: (id: string | undefined, resumed: boolean) => Buffer;
};

/**
 * Begins the stream, or begins it anew: the snapshot, then what has come since it was read or since the client's own place.
 * Should that be too much, or not be known any more, the snapshot alone, which says that it is not all.
 */
export function openViewer(viewer: Viewer, { readAt, end, after, toSnapshot }: Stream): void {
  const from = viewer.owed?.from;
  viewer.owed = undefined;
  const start = from ?? readAt;
  const since = after(start.seq)?.map((heard) => heard.toFrame());
  if (since && viewer.buffer.addAll([toSnapshot(start.id, from !== undefined), ...since])) return;
  viewer.buffer.addAll([toSnapshot(end.id, false)]);
}

/** Looks after one client: cuts off one that takes nothing, and gives another a sign of life when it is time. */
export function tendViewer(
  { buffer, owed }: Viewer,
  place: Place,
  { stuckMs, keepAliveMs, nowMs }: { stuckMs: number; keepAliveMs: number; nowMs: number },
): 'well' | 'cut' {
  if (buffer.busyMs(nowMs) > stuckMs) {
    buffer.close();
    return 'cut';
  }
  // Who is owed a snapshot has not had everything up to this place.
  if (buffer.silentMs(nowMs) >= keepAliveMs) buffer.keepAlive(keepAliveFrame(owed ? undefined : place.id));
  return 'well';
}
