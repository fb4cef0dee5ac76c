import { createServer, type Server } from 'node:http';
import { getRequestListener, RequestError } from '@hono/node-server';
import type { Hono } from 'hono';
import { Problem, toProblem } from './problem.ts';

/** How long a connection may be silent in mid-request: long for a slow line, short for a client that is gone. */
const SILENCE_MS = 120_000;

/**
 * Serves the app; resolves with the server when it listens, and rejects when it cannot.
 *
 * An upload over a slow line may take long as long as it moves, so silence is bounded, not the whole request.
 */
export async function startServer(app: Hono, options: { host: string; port: number }): Promise<Server> {
  const listener = getRequestListener(app.fetch, {
    // A request line or Host header that makes no URL, before any route is looked for.
    errorHandler: (error) => {
      if (!(error instanceof RequestError)) return toProblem(error).toResponse();
      return new Problem(400, 'malformed_url', 'the request has no valid URL').toResponse();
    },
  });
  const server = createServer({ requestTimeout: 0, headersTimeout: 30_000, keepAliveTimeout: 65_000 }, listener);
  server.timeout = SILENCE_MS;
  return await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port, options.host, () => resolve(server));
  });
}
