/** The longest piece of a server's own words in a message. */
const MAX_SAID_LENGTH = 200;
/** Longer messages echo the request; what they have to say stands at their beginning. */
const MAX_READ_LENGTH = 2000;

export type ErrorInfo = {
  message: string;
  param: string;
  /** Message, code, type and parameter, to search in. */
  text: string;
  /** llama.cpp says its context beside the message. */
  contextTokens: number | undefined;
};

/**
 * What an error's body says. The shapes met: `{error: {message, type, param, code}}` (OpenAI, llama.cpp, Ollama), the same
 * without `error` (older vLLM), `{error: "…"}` (LM Studio), `{detail: …}` (FastAPI), `[{error: {…}}]` (Gemini), plain text.
 */
export function readErrorInfo(body: string): ErrorInfo {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    // A proxy's page in HTML says nothing that its status does not.
    const message = body.trimStart().startsWith('<') ? '' : body.slice(0, MAX_READ_LENGTH);
    return { message, param: '', text: message, contextTokens: undefined };
  }
  const outer = asRecord(Array.isArray(parsed) ? parsed[0] : parsed);
  const error = asRecord(outer.error ?? outer.errors);
  const inner = Object.keys(error).length > 0 ? error : outer;
  const texts = [inner.message, outer.error, outer.detail, outer.message].map(asText);
  const message = withoutEcho(texts.find((text) => text !== '') ?? '');
  const param = asText(inner.param);
  const text = [message, asText(inner.code), asText(inner.type), param].join('\n');
  const contextTokens = typeof inner.n_ctx === 'number' ? inner.n_ctx : undefined;
  return { message, param, text, contextTokens };
}

/** Servers that check a request's shape print it behind `input`: neither the paper nor our own settings are their words. */
function withoutEcho(message: string): string {
  return message.replace(/['"]?\binput['"]?\s*[:=][\s\S]*$/, '…');
}

/** The server's words as the end of a message, or nothing. Never the key, whole or as servers mask it. */
export function sayWhat({ message }: ErrorInfo, apiKey: string | undefined): string {
  let said = message;
  if (apiKey !== undefined) said = said.replaceAll(apiKey, '[key]');
  said = said
    .replace(/\b(?:sk|pk|rk|key|gsk|xai|hf)[-_][\w.*-]{4,}|bearer\s+\S+/gi, '[key]')
    .replace(/\s+/g, ' ')
    .trim();
  if (said === '') return '';
  return `: ${said.length > MAX_SAID_LENGTH ? `${said.slice(0, MAX_SAID_LENGTH).toWellFormed()}…` : said}`;
}

function asRecord(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function asText(value: unknown): string {
  if (typeof value === 'string') return value.slice(0, MAX_READ_LENGTH);
  if (typeof value === 'number') return String(value);
  return typeof value === 'object' && value !== null ? JSON.stringify(value).slice(0, MAX_READ_LENGTH) : '';
}
