import { type ModelError, modelError, type PromptTooLong } from './model-error.ts';

/** Lets one HTTP call through when there is room for it. It sees the call's errors, and passes them on. */
export type Gate = <T>(call: () => Promise<T>) => Promise<T>;

export type ModelClientOptions = {
  /** Up to and including `/v1`, or whatever stands before `/chat/completions`. */
  baseUrl: string;
  model: string;
  apiKey?: string | undefined;
  /** The longest answer, reasoning included. Never more than a quarter of the context. Default 8192. */
  maxOutputTokens?: number | undefined;
  /** For one HTTP call, without the wait at the gate. Node's fetch gives up after 300 s by itself. Default 240 s. */
  requestTimeoutMs?: number | undefined;
  /** Prompt and answer together. A server that has less says so, or is found out, and is remembered. Default 32,768. */
  contextTokens?: number | undefined;
  gate?: Gate | undefined;
  fetch?: typeof fetch | undefined;
};

/** The ways to ask for JSON, best first. */
export const FORMATS = ['json_schema', 'json_object', 'prompt'] as const;
export type Format = (typeof FORMATS)[number];

/** What was learnt of one endpoint and model, from its errors, as long as the client lives. */
export type Dialect = {
  format: Format;
  /** OpenAI's newer models refuse the name that every other server knows. */
  limitName: 'max_tokens' | 'max_completion_tokens';
  takesTemperature: boolean;
  /** The longest answer that the model gives. */
  maxOutputTokens: number;
};

/** How much may be asked in one prompt, by `estimateTokens`, and how long its answer may be. */
export type ModelLimits = { promptTokens: number; outputTokens: number };

export type Endpoint = {
  readonly url: URL;
  readonly model: string;
  readonly apiKey: string | undefined;
  readonly requestTimeoutMs: number;
  readonly gate: Gate;
  readonly fetch: typeof fetch;
  readonly dialect: Dialect;
  readonly limits: ModelLimits;
};

/** @throws ModelError `model_settings_invalid`, of class configuration, which never repeats a setting's value */
export function createEndpoint(options: ModelClientOptions): Endpoint {
  const { model, apiKey, maxOutputTokens = 8192, requestTimeoutMs = 240_000, contextTokens = 32_768 } = options;
  const url = URL.parse(options.baseUrl);
  if (url === null || !/^https?:$/.test(url.protocol)) throw invalid('base URL is no http or https URL');
  // fetch would refuse it with a message that shows the password.
  if (url.username !== '' || url.password !== '') throw invalid('base URL must not hold credentials');
  if (model === '') throw invalid('name is empty');
  if (apiKey !== undefined && !/^[\x21-\x7e]+$/.test(apiKey)) throw invalid('key holds what no HTTP header can hold');
  for (const number of [maxOutputTokens, requestTimeoutMs, contextTokens]) {
    if (!Number.isSafeInteger(number) || number < 1) throw invalid('limits must be positive whole numbers');
  }
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/chat/completions`;
  return {
    url,
    model,
    apiKey,
    requestTimeoutMs,
    gate: options.gate ?? ((call) => call()),
    fetch: options.fetch ?? globalThis.fetch,
    dialect: {
      format: 'json_schema',
      limitName: 'max_tokens',
      takesTemperature: true,
      maxOutputTokens: Number.POSITIVE_INFINITY,
    },
    // The estimate of a prompt's tokens errs by a fifth; a tenth is left, and what goes beyond is an error that teaches.
    limits: limitsWithin(contextTokens, maxOutputTokens, 0.9),
  };
}

function limitsWithin(contextTokens: number, maxOutputTokens: number, share: number): ModelLimits {
  const outputTokens = Math.max(1, Math.min(maxOutputTokens, Math.floor(contextTokens / 4)));
  return { outputTokens, promptTokens: Math.floor((contextTokens - outputTokens) * share) };
}

/**
 * Takes a prompt that was too long as the endpoint's measure: later ones keep to the context it named, and in any case to
 * less than what was too much. Where nothing was said, and where the prompt was cut in silence, to half of it.
 */
export function shrinkLimits(limits: ModelLimits, tooLong: PromptTooLong): void {
  const { contextTokens, sentTokens, isSilent } = tooLong;
  if (contextTokens !== undefined) {
    const told = limitsWithin(contextTokens, limits.outputTokens, 0.8);
    limits.outputTokens = told.outputTokens;
    limits.promptTokens = Math.min(limits.promptTokens, told.promptTokens);
  }
  const share = contextTokens === undefined || isSilent ? 0.5 : 0.8;
  limits.promptTokens = Math.min(limits.promptTokens, Math.floor(sentTokens * share));
}

function invalid(fault: string): ModelError {
  return modelError('configuration', 'model_settings_invalid', `the model's ${fault}`);
}
