import { ExtractionError, permanent } from '../../errors.ts';
import { cleanText, collapseSpace } from '../document-text.ts';
import type { HttpAnswer } from './http.ts';

/** How long to wait where a server asks for a wait without saying how long. */
export const DEFAULT_WAIT_MS = 30_000;

/** A quota of a day ends at an hour that the API does not tell: ask now and then. */
export const QUOTA_WAIT_MS = 60 * 60 * 1000;

const MAX_WAIT_MS = 24 * 60 * 60 * 1000;
/** The longest message, in UTF-16 units. */
const MAX_MESSAGE_LENGTH = 300;

/** The server no longer knows an upload, a task or its result: submitting again is all that helps. */
export class TaskForgotten extends Error {
  override readonly name = 'TaskForgotten';
}

export function transient(code: string, message: string): ExtractionError {
  return new ExtractionError('transient', code, message);
}

export function configuration(code: string, message: string): ExtractionError {
  return new ExtractionError('configuration', code, message);
}

export function defer(code: string, message: string, retryAfterMs: number): ExtractionError {
  return new ExtractionError('defer', code, message, { retryAfterMs: Math.min(retryAfterMs, MAX_WAIT_MS) });
}

export function timedOut(what: string): ExtractionError {
  return transient('mineru_timeout', `MinerU did not answer in time: ${what}`);
}

/** @param what the thing that came, as a noun: `a page of HTML` */
export function badAnswer(what: string): ExtractionError {
  return transient('mineru_bad_answer', `MinerU answered with ${what}`);
}

const LOSSES = new Set(['mineru_unreachable', 'mineru_tls', 'mineru_wrong_server']);

/** True where another server, or the same one anew, may stand behind the address by now. */
export function mayBeAnotherServer(error: unknown): boolean {
  return error instanceof ExtractionError && LOSSES.has(error.code);
}

/** Whatever `fetch` rejects with. Its own message may quote a URL or a header, so only the system's error code is kept. */
export function networkError(error: unknown): ExtractionError {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  const code = cause instanceof Error && 'code' in cause && typeof cause.code === 'string' ? cause.code : 'no code';
  if (/CERT|SELF_SIGNED|UNABLE_TO_VERIFY|^ERR_TLS/.test(code)) {
    return configuration('mineru_tls', `MinerU's certificate was not accepted (${code})`);
  }
  if (/^UND_ERR_(?:HEADERS|BODY)_TIMEOUT$/.test(code)) return timedOut(`${code} of the HTTP client`);
  return transient('mineru_unreachable', `the connection to MinerU failed (${code})`);
}

/**
 * The class of an answer by its HTTP status, where its body says nothing better. 404 and 405 mean that the server does not
 * have the route, so they are not for routes that look a task up.
 *
 * @param reason what the body says, from `reasonIn`
 */
export function statusError({ status, headers }: HttpAnswer, reason: string): ExtractionError {
  const said = quoteReason(reason);
  if (status === 401 || status === 402 || status === 403) {
    return configuration('mineru_unauthorized', `MinerU refused the key (${status})${said}`);
  }
  const wait = retryAfterMs(headers);
  if (status === 408 || status === 425 || status === 429 || status >= 500) {
    if (wait !== undefined) return defer('mineru_busy', `MinerU asked for a wait (${status})${said}`, wait);
    // A server that is full says nothing about the paper, and attempts spent on it would be lost.
    if (status === 429 || (status === 503 && BUSY.test(reason))) {
      return defer('mineru_busy', `MinerU is busy (${status})${said}`, DEFAULT_WAIT_MS);
    }
    return transient('mineru_server_error', `MinerU failed (${status})${said}`);
  }
  if (status === 413) return permanent('mineru_document_too_large', `MinerU takes no document of this size${said}`);
  if (status === 404 || status === 405) {
    return configuration('mineru_wrong_server', `no MinerU of the expected version answers there (${status})`);
  }
  // FastAPI's 422, and a 400 that names an option: the form is wrong for this server, not the paper.
  if (status === 422 || (status === 400 && OPTION.test(reason))) {
    return configuration('mineru_options', `MinerU does not accept the options${said}`);
  }
  if (status >= 400) return parseFailure(reason) ?? permanent('mineru_rejected', `MinerU rejected (${status})${said}`);
  return badAnswer(`status ${status}`);
}

const BUSY = /capacity|busy|try again later|too many/i;
const OPTION = /\b(?:backend|parse_method|lang_list|languages?|effort|server_url|tier|model_version)\b/i;

/**
 * What became of a paper, from free text alone: MinerU reports a broken file and an exhausted machine the same way.
 * The machine's complaints are looked for first, since they may come up while a file is loaded.
 *
 * @returns undefined where the text tells neither
 */
export function parseFailure(reason: string): ExtractionError | undefined {
  const said = quoteReason(reason);
  if (MACHINE.test(reason)) return transient('mineru_out_of_resources', `MinerU could not work${said}`);
  if (PASSWORD.test(reason)) return permanent('pdf_password', `MinerU cannot open the document${said}`);
  if (UNSUPPORTED.test(reason)) return permanent('mineru_rejected', `MinerU does not take the document${said}`);
  if (BROKEN.test(reason)) return permanent('pdf_invalid', `MinerU cannot read the document${said}`);
  return undefined;
}

const MACHINE =
  /out of memory|\boom\b|cuda|cudnn|cublas|nccl|\bgpus?\b|\bv?ram\b|\bhip\b|\bmps\b|\bnpu\b|cannot allocate|no space left|too many open files|time(?:d )?[ -]?out|connection|unavailable|engine ?core|engine ?dead|worker|killed|显存|内存|超时/i;
const PASSWORD = /password|encrypt|加密|密码/i;
const UNSUPPORTED = /unsupported file|file type|too many pages|page limit|exceeds? .{0,20}(?:pages|size)|不支持|页数/i;
const BROKEN =
  /corrupt|damaged|malformed|failed to load|data format error|not a (?:valid )?pdf|invalid pdf|pdfium|no \/?root|xref|startxref|eof marker|zero pages|no pages|empty (?:file|document)|cannot identify image|损坏/i;

/** The class of a failed parse; when the text does not tell, it is tried again until the attempts are used up. */
export function parseError(reason: string): ExtractionError {
  return (
    parseFailure(reason) ??
    transient('mineru_parse_failed', `MinerU could not parse the document${quoteReason(reason)}`)
  );
}

/** `Retry-After` in seconds or as an HTTP date, as a wait from now. */
export function retryAfterMs(headers: Headers): number | undefined {
  const text = headers.get('retry-after')?.trim();
  if (text === undefined || text === '') return undefined;
  if (/^\d+(?:\.\d+)?$/.test(text)) return Math.ceil(Number(text) * 1000);
  const date = Date.parse(text);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}

/** A server's words as the end of a message, on one line; `withTidyMessage` has the last word on it. */
function quoteReason(reason: string): string {
  const words = collapseSpace(cleanText(reason.slice(0, 4000)));
  return words === '' ? '' : `: ${words}`;
}

/**
 * Every error leaves through here: its message is short and holds neither the key nor a URL, which may carry a signature,
 * whatever a server put into its answer.
 */
export function withTidyMessage(error: ExtractionError, apiKey: string | undefined): ExtractionError {
  let message = apiKey === undefined ? error.message : error.message.replaceAll(apiKey, '[key]');
  message = message
    .replace(/\b[a-z][a-z0-9+.-]{1,15}:\/\/\S+/gi, '[url]')
    .replace(/\bbearer\s+\S+/gi, '[key]')
    .replace(/[?&](?:signature|x-amz-[a-z-]+|ossaccesskeyid|expires|token)=\S+/gi, '[signature]');
  if (message.length > MAX_MESSAGE_LENGTH) message = `${message.slice(0, MAX_MESSAGE_LENGTH - 1).toWellFormed()}…`;
  return new ExtractionError(error.errorClass, error.code, message, {
    ...(error.retryAfterMs === undefined ? {} : { retryAfterMs: error.retryAfterMs }),
  });
}
