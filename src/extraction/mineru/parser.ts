import { ExtractionError, permanent } from '../../errors.ts';
import { convertByCloud } from './cloud-api.ts';
import { startDeadline } from './deadline.ts';
import type { Convert, DialectName } from './dialect.ts';
import { configuration, mayBeAnotherServer, TaskForgotten, timedOut, transient, withTidyMessage } from './failures.ts';
import { convertByFileParse } from './file-parse-api.ts';
import { createHttp, MAX_BODY_BYTES } from './http.ts';
import { convertByJobs } from './jobs-api.ts';
import { type ParsedDocument, RENDERING, toParsedDocument } from './parsed-document.ts';
import { TaskFailed } from './poll.ts';
import { probe, type Server, type WantedDialect } from './probe.ts';
import { convertByTasks } from './tasks-api.ts';

/** Which parser made a text; two that differ in it may read the same paper differently. */
export type ParserIdentity = { name: string; version: string };

export type DocumentParser = {
  /** @throws ExtractionError as `parse` does, of the classes transient, defer and configuration */
  identify(signal: AbortSignal): Promise<ParserIdentity>;
  /**
   * Reads one paper. The content is left as it is.
   *
   * @throws ExtractionError of any class, with a short message that holds no secret; the signal's reason when it fires
   */
  parse(input: { content: Uint8Array; filename: string; signal: AbortSignal }): Promise<ParsedDocument>;
};

export type MinerUOptions = {
  /** The server's root, or for the cloud `https://mineru.net/api/v4`. */
  baseUrl: string;
  apiKey?: string | undefined;
  /** `auto` finds out; `v3` is 2.x too. */
  dialect?: WantedDialect | undefined;
  /** `backend` in 2.x and 3.x, `tier` in 4.x, `model_version` in the cloud; the server's own default if not given. */
  backend?: string | undefined;
  /** The language that text in pictures is read in; 4.x has none, it is the server's there. */
  language?: string | undefined;
  pollIntervalMs?: number | undefined;
  /** For one request, from its first byte to the last of the answer. The one long request of 2.x has its own limit. */
  requestTimeoutMs?: number | undefined;
  /** For one paper, with all of its requests and waits. */
  parseTimeoutMs?: number | undefined;
  maxBodyBytes?: number | undefined;
  fetch?: typeof fetch | undefined;
};

/** How often a paper is handed in before a server that keeps forgetting it is a failure. */
const MAX_SUBMISSIONS = 3;

const CONVERT: Readonly<Record<DialectName, Convert>> = {
  v2: convertByFileParse,
  v3: convertByTasks,
  v4: convertByJobs,
  cloud: convertByCloud,
};

/**
 * A client of MinerU, which turns PDFs into markdown; for each of its APIs.
 *
 * Which API the server speaks is found out with the first request and remembered, until a connection fails, a task is
 * forgotten or a result comes from another version: then the server may have been exchanged.
 *
 * @throws ExtractionError `mineru_options` (configuration) where the options make no sense
 */
export function createMinerUParser(options: MinerUOptions): DocumentParser {
  const http = createHttp({
    baseUrl: checkedBaseUrl(options.baseUrl),
    apiKey: checkedKey(options.apiKey),
    requestTimeoutMs: options.requestTimeoutMs ?? 120_000,
    maxBodyBytes: options.maxBodyBytes ?? MAX_BODY_BYTES,
    fetch: options.fetch ?? fetch,
  });
  const { backend, language, pollIntervalMs = 2000, parseTimeoutMs = 30 * 60_000 } = options;
  let known: Server | undefined;

  const findServer = async (signal: AbortSignal): Promise<Server> => {
    known ??= await probe(http, options.dialect ?? 'auto', signal);
    return known;
  };

  /** Runs a task of ours, and sees to it that only known errors leave. */
  const guarded = async <T>(signal: AbortSignal, task: () => Promise<T>): Promise<T> => {
    try {
      signal.throwIfAborted();
      return await task();
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      const failure = error instanceof TaskFailed ? error.failure : error;
      if (mayBeAnotherServer(failure)) known = undefined;
      throw failure instanceof ExtractionError ? withTidyMessage(failure, options.apiKey) : failure;
    }
  };

  const convert = async (content: Uint8Array<ArrayBuffer>, uploadName: string, signal: AbortSignal) => {
    for (let submissions = 1; ; submissions += 1) {
      const server = await findServer(signal);
      try {
        const output = await CONVERT[server.dialect]({
          http,
          content,
          uploadName,
          backend,
          language,
          pollIntervalMs,
          signal,
        });
        if (output.version !== undefined && server.version !== undefined && output.version !== server.version) {
          known = undefined;
        }
        return toParsedDocument(output);
      } catch (error) {
        if (!(error instanceof TaskForgotten)) throw error;
        known = undefined;
        if (submissions === MAX_SUBMISSIONS) {
          throw transient('mineru_task_forgotten', `MinerU forgot the document ${submissions} times`);
        }
      }
    }
  };

  return {
    identify: (signal) =>
      guarded(signal, async () => {
        const { dialect, version } = await findServer(signal);
        const server = version === undefined ? dialect : `${dialect}@${version}`;
        return { name: 'mineru', version: [server, backend ?? 'default', language ?? 'default', RENDERING].join(':') };
      }),
    parse: ({ content, filename, signal }) =>
      guarded(signal, async () => {
        if (content.byteLength === 0) throw permanent('document_empty', 'the document has no bytes');
        const late = () => timedOut(`a document took more than ${parseTimeoutMs} ms`);
        const deadline = startDeadline(signal, parseTimeoutMs, late);
        try {
          return await convert(new Uint8Array(content), neutralName(filename), deadline.signal);
        } finally {
          deadline.end();
        }
      }),
  };
}

/** `document.pdf`: what a paper is called is nobody's business, and must not find its way into error texts. */
function neutralName(filename: string): string {
  return `document${/\.[a-z0-9]{1,5}$/i.exec(filename)?.[0].toLowerCase() ?? '.pdf'}`;
}

/** The texts of these errors name no value: either may hold a secret. */
function checkedBaseUrl(text: string): URL {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw configuration('mineru_options', 'the base URL of MinerU must begin with http:// or https://');
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    throw configuration('mineru_options', 'the base URL of MinerU must have no user, query or fragment');
  }
  return url;
}

function checkedKey(key: string | undefined): string | undefined {
  if (key === undefined || /^[\x21-\x7e]+$/.test(key)) return key;
  throw configuration('mineru_options', 'the API key of MinerU must be printable characters without blanks');
}
