import { type ModelError, modelError } from './model-error.ts';

/** An answer's values are a few kilobytes; a server that sends more than this is no model's. */
const MAX_BODY_BYTES = 8 * 1024 * 1024;
const MAX_REDIRECTS = 3;

export type HttpReply = { status: number; headers: Headers; body: string };

export type HttpRequest = {
  fetch: typeof fetch;
  url: URL;
  apiKey: string | undefined;
  body: string;
  /** For the whole exchange, from the first byte sent to the last received: a trickle ends like silence. */
  timeoutMs: number;
  signal: AbortSignal;
};

/**
 * One POST of JSON, and its reply whatever the status.
 *
 * A redirect is followed where method and body stay (307, 308) and the origin stays too: the key and the paper go to no
 * other. Any other redirect is a reply like all others.
 *
 * @throws ModelError, all transient: `model_unreachable`, `model_timeout`, `model_connection_lost`,
 *   `model_response_too_large`; and the signal's reason
 */
export async function postJson(request: HttpRequest): Promise<HttpReply> {
  request.signal.throwIfAborted();
  const timeout = AbortSignal.timeout(request.timeoutMs);
  const signal = AbortSignal.any([request.signal, timeout]);
  let hasHeaders = false;
  try {
    const response = await follow(request, signal);
    hasHeaders = true;
    return { status: response.status, headers: response.headers, body: await readBody(response) };
  } catch (error) {
    request.signal.throwIfAborted();
    if (timeout.aborted) {
      throw modelError(
        'transient',
        'model_timeout',
        `the model's server took longer than ${request.timeoutMs / 1000} s`,
      );
    }
    throw hasHeaders ? whileReading(error) : whileConnecting(error);
  }
}

async function follow(request: HttpRequest, signal: AbortSignal): Promise<Response> {
  let { url } = request;
  for (let redirects = 0; ; redirects += 1) {
    const response = await request.fetch(url, {
      method: 'POST',
      redirect: 'manual',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json',
        ...(request.apiKey === undefined ? {} : { authorization: `Bearer ${request.apiKey}` }),
      },
      body: request.body,
      signal,
    });
    const next = redirects < MAX_REDIRECTS ? nextUrl(response, url) : undefined;
    if (next === undefined) return response;
    await response.body?.cancel();
    url = next;
  }
}

function nextUrl(response: Response, from: URL): URL | undefined {
  const location = response.headers.get('location');
  if ((response.status !== 307 && response.status !== 308) || location === null) return undefined;
  const next = URL.parse(location, from.href);
  return next !== null && next.origin === from.origin && next.username === '' ? next : undefined;
}

async function readBody(response: Response): Promise<string> {
  if (response.body === null) return '';
  const chunks: Uint8Array[] = [];
  let size = 0;
  // Leaving the loop early cancels the stream, and with it the connection.
  for await (const chunk of response.body) {
    size += chunk.byteLength;
    if (size > MAX_BODY_BYTES) {
      const limit = `${MAX_BODY_BYTES / 1024 / 1024} MB`;
      throw modelError('transient', 'model_response_too_large', `the model's server sent more than ${limit}`);
    }
    chunks.push(chunk);
  }
  return new TextDecoder().decode(Buffer.concat(chunks));
}

function whileConnecting(error: unknown): ModelError {
  return modelError('transient', 'model_unreachable', `the model's server was not reached${causeOf(error)}`);
}

function whileReading(error: unknown): unknown {
  if (error instanceof Error && 'errorClass' in error) return error;
  return modelError('transient', 'model_connection_lost', `the model's answer ended early${causeOf(error)}`);
}

/** The code alone: messages of the HTTP client may hold what was sent. */
function causeOf(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : undefined;
  const code = typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : undefined;
  return typeof code === 'string' ? ` (${code.slice(0, 60)})` : '';
}
