import { ExtractionError, permanent } from '../../errors.ts';
import { startDeadline } from './deadline.ts';
import { badAnswer, configuration, networkError, timedOut } from './failures.ts';

/** A parsed paper is a few hundred kilobytes; a cloud archive with its pictures may be a hundred megabytes. */
export const MAX_BODY_BYTES = 200 * 1024 * 1024;

/** What is read of an answer that reports an error: enough for its message. */
const MAX_ERROR_BYTES = 64 * 1024;

const MAX_REDIRECTS = 5;

export type HttpRequest = {
  method: 'GET' | 'POST' | 'PUT';
  /** A path below the base URL, or for a signed URL the whole of it. */
  url: string | URL;
  headers?: Record<string, string>;
  body?: string | FormData | Uint8Array<ArrayBuffer>;
  /** Signed URLs carry their own authority: the key is not sent with them, whatever their origin. */
  signed?: boolean;
  /** From the request's first byte to the answer's last; the client's own limit by default. */
  timeoutMs?: number;
};

export type HttpAnswer = { status: number; headers: Headers; bytes: Uint8Array<ArrayBuffer> };

/** One MinerU server over HTTP. */
export type Http = {
  readonly base: URL;
  /**
   * Sends one request and reads the whole answer, whatever its status.
   *
   * @throws ExtractionError `mineru_unreachable`, `mineru_timeout` (both transient), `mineru_redirect`, `mineru_tls`
   *   (configuration), `mineru_result_too_large` (permanent); the signal's reason when it fires
   */
  send(request: HttpRequest, signal: AbortSignal): Promise<HttpAnswer>;
};

export type HttpOptions = {
  baseUrl: URL;
  apiKey: string | undefined;
  requestTimeoutMs: number;
  maxBodyBytes: number;
  fetch: typeof fetch;
};

export function createHttp(options: HttpOptions): Http {
  const base = new URL(options.baseUrl);
  if (!base.pathname.endsWith('/')) base.pathname += '/';

  /** Follows redirects of GETs within the origin; the request's deadline spans them all. */
  const follow = async (request: HttpRequest, signal: AbortSignal): Promise<Response> => {
    let url = targetOf(base, request);
    for (let hops = 0; ; hops += 1) {
      const headers = new Headers(request.headers);
      if (options.apiKey !== undefined && !request.signed && url.origin === base.origin) {
        headers.set('authorization', `Bearer ${options.apiKey}`);
      }
      const response = await options.fetch(url, {
        method: request.method,
        headers,
        // The body of a redirected request would have to be sent again, to a place nobody configured.
        redirect: 'manual',
        signal,
        ...(request.body === undefined ? {} : { body: request.body }),
      });
      if (response.status < 300 || response.status > 399) return response;
      await response.body?.cancel();
      const next = URL.parse(response.headers.get('location') ?? '', url.href);
      if (request.method !== 'GET' || next === null || next.origin !== url.origin || hops === MAX_REDIRECTS) {
        const where =
          next === null ? 'nowhere' : next.origin === url.origin ? 'in the same origin' : 'to another origin';
        throw configuration(
          'mineru_redirect',
          `MinerU redirects a ${request.method} request ${where}: set its own URL`,
        );
      }
      url = next;
    }
  };

  return {
    base,
    async send(request, signal) {
      signal.throwIfAborted();
      const timeoutMs = request.timeoutMs ?? options.requestTimeoutMs;
      const deadline = startDeadline(signal, timeoutMs, () => timedOut(`a request took more than ${timeoutMs} ms`));
      try {
        const response = await follow(request, deadline.signal);
        return {
          status: response.status,
          headers: response.headers,
          bytes: response.ok
            ? await readBody(response, options.maxBodyBytes)
            : await readBeginning(response, MAX_ERROR_BYTES),
        };
      } catch (error) {
        if (deadline.signal.aborted) throw deadline.signal.reason;
        throw error instanceof ExtractionError ? error : networkError(error);
      } finally {
        deadline.end();
      }
    },
  };
}

function targetOf(base: URL, { url, signed }: HttpRequest): URL {
  const target = URL.parse(String(url), base.href);
  if (target === null || !/^https?:$/.test(target.protocol)) throw badAnswer('a URL that is none');
  // Over plain HTTP anyone on the way could read the paper that the operator asked to be sent over TLS.
  if (signed && base.protocol === 'https:' && target.protocol !== 'https:') throw badAnswer('a URL without TLS');
  return target;
}

async function readBody(response: Response, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const tooLarge = () => permanent('mineru_result_too_large', `MinerU's answer is larger than ${maxBytes} bytes`);
  if (Number(response.headers.get('content-length')) > maxBytes) {
    await response.body?.cancel();
    throw tooLarge();
  }
  const body = await readUpTo(response, maxBytes);
  if (body.cut) throw tooLarge();
  return body.bytes;
}

async function readBeginning(response: Response, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  return (await readUpTo(response, maxBytes)).bytes;
}

/** Counts the bytes after decompression: a small body may unpack to a huge one. */
async function readUpTo(
  response: Response,
  maxBytes: number,
): Promise<{ bytes: Uint8Array<ArrayBuffer>; cut: boolean }> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  let cut = false;
  // Leaving the loop early cancels the stream, and with it the connection.
  for await (const chunk of response.body ?? []) {
    chunks.push(chunk);
    size += chunk.byteLength;
    cut = size > maxBytes;
    if (cut) break;
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.byteLength;
  }
  return { bytes: cut ? bytes.slice(0, maxBytes) : bytes, cut };
}
