import type { ChatBody } from './model-server.ts';

export type Problem = { status: number; body: unknown };

export type Ways = {
  /** What is wrong with a request, by this server's rules. */
  check: (body: ChatBody) => Problem | undefined;
  /** How it refuses a prompt that is too long; without, it cuts it and says nothing. */
  tooLong?: (promptTokens: number, contextTokens: number) => Problem;
  /** How its model writes the object that it means. */
  speak: (answer: object, body: ChatBody) => string;
};

const json = (answer: object) => JSON.stringify(answer);
const prose = (answer: object) =>
  `Here is what I found:\n\`\`\`json\n${JSON.stringify(answer, null, 2)}\n\`\`\`\nAnything else?`;
const nested = (status: number, error: object): Problem => ({ status, body: { error } });
const nothing = () => undefined;

function openAiTooLong(promptTokens: number, contextTokens: number): Problem {
  return nested(400, {
    message: `This model's maximum context length is ${contextTokens} tokens. However, your messages resulted in ${promptTokens} tokens. Please reduce the length of the messages.`,
    type: 'invalid_request_error',
    param: 'messages',
    code: 'context_length_exceeded',
  });
}

/** Words and shapes as the servers' own issues and sources show them. */
export const dialects = {
  openai: { check: checkStrictly, tooLong: openAiTooLong, speak: json },
  /** OpenAI's newer models. */
  'openai-reasoning': {
    check(body) {
      if ('max_tokens' in body) {
        return unsupported('max_tokens', "is not supported with this model. Use 'max_completion_tokens' instead.");
      }
      if ('temperature' in body) {
        return unsupported(
          'temperature',
          'does not support 0 with this model. Only the default (1) value is supported.',
        );
      }
      return checkStrictly(body);
    },
    tooLong: openAiTooLong,
    speak: json,
  },
  vllm: {
    check: nothing,
    tooLong: (promptTokens, contextTokens) => ({
      status: 400,
      body: {
        object: 'error',
        message: `This model's maximum context length is ${contextTokens} tokens. However, you requested ${promptTokens + 100} tokens (${promptTokens} in the messages, 100 in the completion). Please reduce the length of the messages or completion.`,
        type: 'BadRequestError',
        param: null,
        code: 400,
      },
    }),
    speak: json,
  },
  llamacpp: {
    check: nothing,
    tooLong: (n_prompt_tokens, n_ctx) =>
      nested(400, {
        code: 400,
        message: 'the request exceeds the available context size, try increasing it',
        type: 'exceed_context_size_error',
        n_prompt_tokens,
        n_ctx,
      }),
    speak: json,
  },
  ollama: { check: nothing, speak: json },
  'ollama-cloud': { check: nothing, speak: prose },
  lmstudio: {
    check: ({ response_format: format }) =>
      format?.type === 'json_object'
        ? { status: 400, body: { error: "'response_format.type' must be 'json_schema' or 'text'" } }
        : undefined,
    tooLong: (promptTokens, contextTokens) => ({
      status: 400,
      body: {
        error: `Trying to keep the first ${promptTokens} tokens when context the overflows. However, the model is loaded with context length of only ${contextTokens} tokens, which is not enough.`,
      },
    }),
    speak: json,
  },
  deepseek: {
    check({ response_format: format, messages }) {
      const type = 'invalid_request_error';
      if (format?.type === 'json_schema') {
        return nested(400, { message: 'This response_format type is unavailable now', type, param: null, code: type });
      }
      if (format?.type === 'json_object' && !messages.some(({ content }) => /json/i.test(content))) {
        const message =
          "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.";
        return nested(400, { message, type, param: null, code: type });
      }
      return undefined;
    },
    tooLong: openAiTooLong,
    speak: json,
  },
  /** A server that knows no way to ask for JSON. */
  plain: {
    check: ({ response_format: format }) =>
      format === undefined
        ? undefined
        : {
            status: 422,
            body: { detail: [{ type: 'extra_forbidden', loc: ['body', 'response_format'], msg: 'Extra inputs' }] },
          },
    speak: prose,
  },
} satisfies Record<string, Ways>;

export type Dialect = keyof typeof dialects;

function unsupported(param: string, what: string): Problem {
  const code = param === 'temperature' ? 'unsupported_value' : 'unsupported_parameter';
  return nested(400, { message: `Unsupported: '${param}' ${what}`, type: 'invalid_request_error', param, code });
}

/** OpenAI's strict mode: no object may allow other properties, and all of its own are required. */
function checkStrictly({ response_format: format }: ChatBody): Problem | undefined {
  if (format?.type !== 'json_schema') return undefined;
  const fault = format.json_schema?.strict === true ? faultOf(format.json_schema.schema, []) : 'strict is not set';
  if (fault === undefined) return undefined;
  return nested(400, {
    message: `Invalid schema for response_format 'answer': ${fault}`,
    type: 'invalid_request_error',
    param: 'response_format',
    code: null,
  });
}

const KEYWORDS = new Set(['type', 'properties', 'required', 'additionalProperties', 'items', 'enum', 'description']);

function faultOf(schema: unknown, path: readonly string[]): string | undefined {
  if (typeof schema !== 'object' || schema === null) return `${path.join('.')} is no schema`;
  const { type, properties, required, additionalProperties, items, ...others } = schema as Record<string, unknown>;
  const unknown = Object.keys(others).find((keyword) => !KEYWORDS.has(keyword));
  if (unknown !== undefined) return `${path.join('.')}: ${unknown} is not permitted`;
  if (items !== undefined) return faultOf(items, [...path, 'items']);
  if (type !== 'object') return undefined;
  if (additionalProperties !== false) return `${path.join('.')}: additionalProperties is required to be false`;
  const keys = Object.keys(properties ?? {});
  if (JSON.stringify(keys) !== JSON.stringify(required)) return `${path.join('.')}: required must hold every key`;
  return Object.entries(properties ?? {})
    .map(([key, value]) => faultOf(value, [...path, key]))
    .find((fault) => fault !== undefined);
}
