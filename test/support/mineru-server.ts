import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { DocumentParser, MinerUOptions } from '../../src/extraction/mineru/parser.ts';
import { createMinerUParser } from '../../src/extraction/mineru/parser.ts';

/** What goes wrong with one request. Faults of a route are used up in their order; then it works. */
export type Fault =
  /** An answer other than the route's own. */
  | { answer: number; body?: unknown; headers?: Record<string, string> }
  /** The connection is cut without an answer. */
  | 'drop'
  /** No answer, ever. */
  | 'silence'
  /** The headers, and then a byte now and then, without end. */
  | 'trickle'
  /** The route's own answer, but only half of its body. */
  | 'cut'
  /** Something happens on the server before the route works as usual. */
  | (() => void | Promise<void>);

export type Reply = { status?: number; json?: unknown; bytes?: Uint8Array; headers?: Record<string, string> };

export type Received = {
  route: string;
  method: string;
  url: string;
  headers: IncomingMessage['headers'];
  /** The first variable part of the path. */
  id: string;
  body: Buffer;
  /** Resolves when the connection of this request is gone, answered or not. */
  closed: Promise<void>;
};

export type Handler = (request: Received) => Reply | Promise<Reply>;

/** A stand-in for a MinerU server on loopback, with a plan of what goes wrong. */
export type StandIn = {
  readonly url: string;
  /** Every request so far, oldest first. */
  readonly requests: Received[];
  /** The routes of the requests so far, oldest first. */
  routes(): string[];
  /** Lets the next requests to a route go wrong, one after the other. */
  plan(route: string, ...faults: Fault[]): void;
  /** Resolves with the next request to a route, when it has come in. */
  next(route: string): Promise<Received>;
  /** Stops listening and cuts every connection. */
  die(): Promise<void>;
  /** Listens again, at the same address. */
  revive(): Promise<void>;
  /** A client with short times; options as given. */
  parser(options?: Partial<MinerUOptions>): DocumentParser;
  close(): Promise<void>;
};

/** @param handlers by route, such as `GET /tasks/:id`; any other request gets FastAPI's 404, or 405 for another method */
export async function startStandIn(handlers: Record<string, Handler>): Promise<StandIn> {
  const requests: Received[] = [];
  const plans = new Map<string, Fault[]>();
  const expected = new Map<string, (request: Received) => void>();
  const routes = Object.entries(handlers).map(([route, handler]) => {
    const [method = '', path = ''] = route.split(' ');
    return { route, method, handler, pattern: new RegExp(`^${path.replace(/:id/g, '([^/]+)')}$`) };
  });

  const server = createServer(async (incoming, response) => {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of incoming) chunks.push(chunk);
    } catch {
      return;
    }
    const path = (incoming.url ?? '').split('?')[0] ?? '';
    const here = routes.filter(({ pattern }) => pattern.test(path));
    const match = here.find(({ method }) => method === incoming.method);
    const request: Received = {
      route: match?.route ?? `${incoming.method} ${path}`,
      method: incoming.method ?? '',
      url: incoming.url ?? '',
      headers: incoming.headers,
      id: match?.pattern.exec(path)?.[1] ?? '',
      body: Buffer.concat(chunks),
      closed: new Promise((resolve) => response.once('close', resolve)),
    };
    requests.push(request);
    expected.get(request.route)?.(request);
    const fault = plans.get(request.route)?.shift();
    if (typeof fault === 'function') await fault();
    else if (fault !== undefined && fault !== 'cut') return misbehave(response, fault);
    if (match === undefined) {
      const status = here.length > 0 ? 405 : 404;
      return reply(response, { status, json: { detail: status === 404 ? 'Not Found' : 'Method Not Allowed' } });
    }
    reply(response, await match.handler(request), fault === 'cut');
  });

  const listen = (port: number) => new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  await listen(0);
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  const die = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return {
    url,
    requests,
    routes: () => requests.map(({ route }) => route),
    plan: (route, ...faults) => void plans.set(route, [...(plans.get(route) ?? []), ...faults]),
    next: (route) => new Promise((resolve) => expected.set(route, resolve)),
    die,
    revive: () => listen(port),
    parser: (options) => createMinerUParser({ baseUrl: url, pollIntervalMs: 1, ...options }),
    close: die,
  };
}

function reply(response: ServerResponse, { status = 200, json, bytes, headers = {} }: Reply, cut = false): void {
  const body = bytes ?? Buffer.from(json === undefined ? '' : JSON.stringify(json));
  response.writeHead(status, {
    ...(json === undefined ? {} : { 'content-type': 'application/json' }),
    'content-length': body.byteLength,
    ...headers,
  });
  if (!cut) return void response.end(body);
  response.write(body.subarray(0, Math.floor(body.byteLength / 2)), () => response.destroy());
}

function misbehave(response: ServerResponse, fault: Exclude<Fault, 'cut' | (() => void)>): void {
  if (fault === 'silence') return;
  if (fault === 'drop') return void response.destroy();
  if (fault === 'trickle') {
    response.writeHead(200, { 'content-type': 'application/json' });
    const timer = setInterval(() => response.write(' '), 5);
    response.once('close', () => clearInterval(timer));
    return;
  }
  const { answer, body = '', headers = {} } = fault;
  const isText = typeof body === 'string';
  response.writeHead(answer, { 'content-type': isText ? 'text/html' : 'application/json', ...headers });
  response.end(isText ? body : JSON.stringify(body));
}

/** The fields of a multipart form, and its one file. */
export async function readForm({ headers, body }: Received): Promise<{ fields: Record<string, string>; file: File }> {
  const form = await new Response(new Uint8Array(body), {
    headers: { 'content-type': headers['content-type'] ?? '' },
  }).formData();
  const fields: Record<string, string> = {};
  for (const [name, value] of form) if (typeof value === 'string') fields[name] = value;
  return { fields, file: form.get('files') as File };
}

/** The blocks of a paper of two pages, as MinerU gives them. */
export const BLOCKS = [
  { type: 'text', text: 'Aspirin for headache', text_level: 1, bbox: [62, 80, 946, 104], page_idx: 0 },
  { type: 'text', text: 'We randomised 120 adults.', bbox: [62, 120, 946, 204], page_idx: 0 },
  { type: 'text', text: 'Results', text_level: 2, bbox: [62, 80, 946, 104], page_idx: 1 },
  { type: 'text', text: 'Pain fell.', bbox: [62, 120, 946, 204], page_idx: 1 },
];

export const MARKDOWN = '# Aspirin for headache\n\nWe randomised 120 adults.\n\n## Results\n\nPain fell.\n';

/** What a client makes of `BLOCKS`. */
export const PAGES = ['# Aspirin for headache\n\nWe randomised 120 adults.', '## Results\n\nPain fell.'];
