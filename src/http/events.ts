import type { ServerResponse } from 'node:http';
import { type Context, Hono } from 'hono';
import type { Hub } from '../events/hub.ts';
import { negotiate } from './negotiate.ts';
import { notFound, Problem } from './problem.ts';
import { parseId, parseQuery } from './schemas.ts';
import { streamBody } from './stream-body.ts';

const MEDIA_TYPE = 'text/event-stream';

/** The life of a task as a live stream of server-sent events. */
export function events(hub: Hub): Hono {
  const app = new Hono();

  app.get('/:taskId/events', async (c) => {
    parseQuery(c, {});
    refuseOtherTypes(c);
    const taskId = parseId(c, 'taskId');
    const { outgoing } = (c.env ?? {}) as { outgoing?: ServerResponse };
    const lastEventId = c.req.header('last-event-id');
    const watching = await hub.watch(taskId, { lastEventId, cut: () => outgoing?.destroy() });
    switch (watching.outcome) {
      case 'unknown':
        throw notFound('task', taskId);
      case 'closed':
        throw new Problem(503, 'stopping', 'this process is stopping; try again', { headers: { 'Retry-After': '1' } });
      case 'finished':
        // An EventSource would come back for ever; this is the answer that makes it stop.
        return c.body(null, 204, { 'Cache-Control': 'no-store' });
    }
    const { pieces } = watching;
    const headers = {
      'Content-Type': MEDIA_TYPE,
      'Cache-Control': 'no-store',
      Vary: 'Accept',
      // nginx would hold events back until its buffer is full.
      'X-Accel-Buffering': 'no',
      // A stream that ends leaves nothing that a stopping server would have to wait for.
      Connection: 'close',
    };
    if (c.req.method === 'HEAD') {
      await pieces.return();
      return c.body(null, 200, headers);
    }
    return c.body(
      // A stream has no piece that could fail to be made.
      streamBody(c, pieces, () => {}),
      200,
      headers,
    );
  });

  return app;
}

/** @throws Problem 406 */
function refuseOtherTypes(c: Context): void {
  if (negotiate(c, [MEDIA_TYPE]) !== undefined) return;
  throw new Problem(406, 'not_acceptable', `events come as ${MEDIA_TYPE}`, { headers: { Vary: 'Accept' } });
}
