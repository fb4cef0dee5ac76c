import type { ServerResponse } from 'node:http';
import type { Context } from 'hono';

/**
 * A body of many pieces, each made only when the client has taken the one before: nothing is made in advance, and nothing
 * for a client that has gone.
 *
 * When a piece cannot be made, `onFault` is told, and the connection is broken off, so that what was sent never passes for
 * the whole. That is done here: the server's adapter would print the error, and end the body with its text.
 */
export function streamBody(
  c: Context,
  pieces: AsyncIterator<Uint8Array, void, undefined>,
  onFault: (error: unknown) => void,
): ReadableStream<Uint8Array> {
  let gone = false;
  return new ReadableStream(
    {
      async pull(controller) {
        try {
          const piece = await pieces.next();
          if (piece.done) controller.close();
          else controller.enqueue(piece.value);
        } catch (error) {
          // Made for nobody: a cancelled stream takes no piece and no fault any more.
          if (gone) return;
          onFault(error);
          const { outgoing } = (c.env ?? {}) as { outgoing?: ServerResponse };
          if (outgoing === undefined) controller.error(error);
          else outgoing.destroy();
        }
      },
      async cancel() {
        gone = true;
        await pieces.return?.();
      },
    },
    // Otherwise one piece would be made in advance, and its fault be met while the client still takes the piece before.
    { highWaterMark: 0 },
  );
}
