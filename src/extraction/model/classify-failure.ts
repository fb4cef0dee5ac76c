import { type ErrorInfo, readErrorInfo, sayWhat } from './error-info.ts';
import { type ModelError, modelError } from './model-error.ts';
import { retryAfterMs } from './retry-after.ts';
import type { HttpReply } from './send-request.ts';

/**
 * What a reply that is no completion means for the next step:
 *
 * - `format`        the server does not know this way to ask for JSON; `always`: or not this schema only
 * - `parameter`     it wants the limit on output under its newer name, or no temperature
 * - `output_limit`  it gives no answers as long as that were allowed
 * - `context`       the prompt is too long; with the context's size, where it is said
 * - `error`         nothing that another way to ask would mend
 *
 * `error` is what is thrown where nothing else is left to try.
 */
export type Failure = { error: ModelError } & (
  | { kind: 'format'; always: boolean }
  | { kind: 'parameter'; name: 'max_tokens' | 'temperature' }
  | { kind: 'output_limit'; tokens: number }
  | { kind: 'context'; contextTokens: number | undefined }
  | { kind: 'error' }
);

/**
 * Classes a reply by its status and what its body says. The first four kinds are looked for only where a server can mean
 * them (400, 413, 422, and 500 by older llama.cpp for the context).
 *
 * | signal | class |
 * |---|---|
 * | 408, 409, 425, 429, 5xx | transient; with `retry-after(-ms)` deferred |
 * | 429 for an exhausted quota, 401, 402, 403, 404, 405, a redirect elsewhere | configuration |
 * | any other | permanent |
 *
 * @param apiKey is removed from every message
 */
export function classifyFailure(reply: HttpReply, apiKey: string | undefined, now = Date.now()): Failure {
  const info = readErrorInfo(reply.body);
  const { status } = reply;
  const error = errorOf(reply, info, apiKey, now);
  if ([400, 413, 422, 500].includes(status) && isContextError(info)) {
    return { kind: 'context', contextTokens: contextTokensOf(info), error };
  }
  if (status === 400 || status === 422) {
    const limit = outputLimitOf(info);
    if (limit !== undefined) return { kind: 'output_limit', tokens: limit, error };
    if (/max_completion_tokens/.test(info.text)) return { kind: 'parameter', name: 'max_tokens', error };
    if (
      /temperature/i.test(`${info.param} ${info.message}`) &&
      /unsupported|not support|only|must|deprecated/i.test(info.text)
    ) {
      return { kind: 'parameter', name: 'temperature', error };
    }
    if (FORMAT.test(info.text)) return { kind: 'format', always: !SCHEMA_ALONE.test(info.text), error };
  }
  return { kind: 'error', error };
}

function errorOf(reply: HttpReply, info: ErrorInfo, apiKey: string | undefined, now: number): ModelError {
  const { status } = reply;
  const said = sayWhat(info, apiKey);
  if (status >= 300 && status < 400) {
    const origin = URL.parse(reply.headers.get('location') ?? '')?.origin;
    const where = origin === undefined ? '' : ` to ${origin.slice(0, 200)}`;
    return modelError(
      'configuration',
      'model_redirected',
      `the model's server redirects${where}: give its final address`,
    );
  }
  if (status === 401)
    return modelError('configuration', 'model_unauthorized', `the model's server takes no such key${said}`);
  if (status === 402 || (status === 429 && QUOTA.test(info.text))) {
    return modelError('configuration', 'model_quota_exhausted', `the model's quota is used up (${status})${said}`);
  }
  if (status === 404 || status === 405) {
    // A slip in the model's name or in the address would otherwise end every paper as an error of its own.
    return modelError('configuration', 'model_not_found', `the model's server knows no such model or path${said}`);
  }
  if (status === 403) return modelError('configuration', 'model_forbidden', `the model's server denies access${said}`);
  if (status === 429) return passing(reply, now, 'model_rate_limited', `the model's server limits the rate${said}`);
  if (status >= 500 || [408, 409, 425].includes(status)) {
    return passing(reply, now, 'model_unavailable', `the model's server failed (${status})${said}`);
  }
  return modelError('permanent', 'model_rejected', `the model's server rejects the request (${status})${said}`);
}

function passing({ headers }: HttpReply, now: number, code: string, message: string): ModelError {
  const waitMs = retryAfterMs(headers, now);
  return waitMs === undefined ? modelError('transient', code, message) : modelError('defer', code, message, waitMs);
}

/** OpenAI's code, its sentence, and those of others for an account without money. */
const QUOTA =
  /insufficient[_ ](?:user_)?quota|exceeded your current quota|insufficient[_ ]balance|billing|credit balance/i;

const FORMAT =
  /response_format|json_schema|json_object|json mode|structured[_ ]outputs?|guided[_ ](?:json|decoding)|grammar/i;

/** The format is known, this template's schema is not taken: the next template's may be. */
const SCHEMA_ALONE = /invalid schema|schema is too|too (?:large|complex|many)|exceeds? the (?:limit|maximum)/i;

/**
 * OpenAI, Azure and OpenRouter; vLLM; llama.cpp; LM Studio and Ollama; DashScope; Mistral and TGI. All of them name the
 * context or the input's length.
 */
const CONTEXT =
  /context_length_exceeded|exceed_context_size_error|maximum context length|context (?:length|size|window)[^.]{0,60}exceed|exceeds?[^.]{0,40}context|context length of only|context the overflows|prompt is too long|reduce the length of the (?:messages|input|prompt)|range of input length should be|input (?:is|tokens?|length)[^.]{0,40}(?:too long|exceed|must be <)|max_tokens must be at least 1, got -|tokens \+ `?max_new_tokens`? must be/i;

function isContextError(info: ErrorInfo): boolean {
  return CONTEXT.test(info.text);
}

function contextTokensOf(info: ErrorInfo): number | undefined {
  const said =
    /(?:maximum context length|context (?:length|size|window)|n_ctx)[^\d.]{0,40}([\d,]{3,10})/i.exec(info.text)?.[1] ??
    /input length should be \[\d+, ?(\d{3,8})\]/i.exec(info.text)?.[1];
  const tokens = info.contextTokens ?? Number(said?.replaceAll(',', ''));
  return Number.isSafeInteger(tokens) && tokens >= 128 ? tokens : undefined;
}

/** "max_tokens is too large: 9000. This model supports at most 4096 completion tokens", "the valid range … is [1, 8192]". */
function outputLimitOf({ text }: ErrorInfo): number | undefined {
  if (!/max_(?:completion_)?tokens/.test(text)) return undefined;
  const said =
    /supports at most ([\d,]{2,9}) (?:completion|output) tokens/i.exec(text)?.[1] ??
    /range of max_(?:completion_)?tokens is \[\d+, ?(\d{2,8})\]/i.exec(text)?.[1];
  const tokens = Number(said?.replaceAll(',', ''));
  return Number.isSafeInteger(tokens) && tokens >= 16 ? tokens : undefined;
}
