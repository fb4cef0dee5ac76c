/**
 * What waits for one client: frames go in as things happen, and come out when the client takes them. Read by `next` as an
 * iterator is, one piece at a time, each asked for when the one before is on its way.
 */
export type ClientBuffer = AsyncIterator<Uint8Array, void, undefined> & {
  /** Puts a frame behind the others. False: it does not fit, and has not been put. */
  add(frame: Buffer): boolean;
  /** As above, with frames that must all be in or none; the first fits always. */
  addAll(frames: readonly Buffer[]): boolean;
  /** Puts a sign of life, which needs no place: to a client for whom something waits it would say nothing. */
  keepAlive(frame: Buffer): void;
  /** Takes back what has not been taken. */
  clear(): void;
  /** Nothing comes behind what is in it. */
  end(): void;
  /** Ends at once; a client that is not asking for the next piece is cut off. */
  close(): void;
  return(): Promise<IteratorReturnResult<undefined>>;
  /** How long the client has been at its last piece; 0 when it asks for the next. */
  busyMs(nowMs: number): number;
  /** For how long nothing was sent to it. */
  silentMs(nowMs: number): number;
};

export type ClientBufferOptions = {
  maxBytes: number;
  /** Breaks the connection off. */
  cut: () => void;
  /** The client has gone, or everything was sent. */
  onGone: () => void;
};

/** Of many frames that wait, as many as come to about this go in one piece. */
const PIECE_BYTES = 64 * 1024;

export function createClientBuffer({ maxBytes, cut, onGone }: ClientBufferOptions): ClientBuffer {
  type Piece = IteratorResult<Uint8Array, void>;
  const done = { done: true, value: undefined } as const;
  let frames: Buffer[] = [];
  let bytes = 0;
  let state: 'open' | 'ending' | 'gone' = 'open';
  let asking: ((piece: Piece) => void) | undefined;
  let busy = false;
  let sentAtMs = performance.now();

  const leave = (): void => {
    if (state === 'gone') return;
    state = 'gone';
    clear();
    asking?.(done);
    asking = undefined;
    onGone();
  };

  const clear = (): void => {
    frames = [];
    bytes = 0;
  };

  /** Answers the client that asks, if there is something to answer. */
  const serve = (): void => {
    if (asking === undefined) return;
    if (frames.length === 0) {
      if (state === 'ending') leave();
      return;
    }
    const answer = asking;
    asking = undefined;
    busy = true;
    sentAtMs = performance.now();
    answer({ done: false, value: takePiece() });
  };

  const takePiece = (): Buffer => {
    let count = 0;
    let size = 0;
    for (const frame of frames) {
      if (count > 0 && size + frame.length > PIECE_BYTES) break;
      count += 1;
      size += frame.length;
    }
    bytes -= size;
    const taken = frames.splice(0, count);
    // A single frame is the same bytes for all clients: no copy.
    return taken.length === 1 ? (taken[0] as Buffer) : Buffer.concat(taken);
  };

  const put = (frame: Buffer): void => {
    frames.push(frame);
    bytes += frame.length;
  };

  return {
    add(frame) {
      if (state !== 'open') return true;
      if (bytes > 0 && bytes + frame.length > maxBytes) return false;
      put(frame);
      serve();
      return true;
    },
    addAll(all) {
      if (state !== 'open') return true;
      const [, ...others] = all;
      if (bytes + others.reduce((sum, frame) => sum + frame.length, 0) > maxBytes) return false;
      all.forEach(put);
      serve();
      return true;
    },
    keepAlive(frame) {
      if (state !== 'open' || asking === undefined) return;
      put(frame);
      serve();
    },
    clear,
    end() {
      if (state === 'open') state = 'ending';
      serve();
    },
    close() {
      if (state === 'gone') return;
      const taking = asking !== undefined;
      leave();
      if (!taking) cut();
    },
    next() {
      if (state === 'gone') return Promise.resolve(done);
      return new Promise((resolve) => {
        asking = resolve;
        busy = false;
        serve();
      });
    },
    async return() {
      leave();
      return done;
    },
    busyMs: (nowMs) => (busy ? nowMs - sentAtMs : 0),
    silentMs: (nowMs) => nowMs - sentAtMs,
  };
}
