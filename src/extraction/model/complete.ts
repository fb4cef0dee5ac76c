import type { JsonSchema } from './answer-schema.ts';
import type { Failure } from './classify-failure.ts';
import { type Dialect, type Endpoint, FORMATS, type Format, type Gate } from './endpoint.ts';
import { type ModelError, PromptTooLong } from './model-error.ts';
import { type Completion, readCompletion } from './read-completion.ts';
import { postJson } from './send-request.ts';
import { estimateTokens } from './tokens.ts';
import { type ModelUsage, noUsage } from './usage.ts';

export type Message = { role: 'system' | 'user' | 'assistant'; content: string };

export type CompletionRequest = {
  messages: readonly Message[];
  schema: JsonSchema;
  outputTokens: number;
  signal: AbortSignal;
  gate: Gate;
};

/**
 * One completion, in the way that the endpoint understands: strict JSON schema, else any JSON object, else by the prompt
 * alone. A refusal of the way to ask is taken as a lesson: the next way is tried, and the endpoint remembers it. Every
 * lesson leads further down, so that there is an end.
 *
 * @param count is told of every HTTP request
 * @throws PromptTooLong, any other ModelError by `classifyFailure` and `postJson`, what the gate throws
 */
export async function complete(
  endpoint: Endpoint,
  request: CompletionRequest,
  count: (usage: ModelUsage) => void,
): Promise<Completion> {
  const { dialect } = endpoint;
  let lowest: Format = 'json_schema';
  for (;;) {
    // Another paper may have learnt something meanwhile.
    const used: Dialect = { ...dialect, format: lower(lowest, dialect.format) };
    // Within the gate, so that who counts permits sees a server that asks for a pause.
    const reply = await request.gate(() => send(endpoint, request, used, count));
    switch (reply.kind) {
      case 'completion':
        return reply;
      case 'context':
        throw new PromptTooLong(promptTokens(request.messages), reply.contextTokens, false);
      case 'format': {
        const next = FORMATS[FORMATS.indexOf(used.format) + 1];
        if (next === undefined) throw reply.error;
        lowest = next;
        if (reply.always) dialect.format = lower(dialect.format, next);
        break;
      }
      case 'parameter':
        if (reply.name === 'temperature') {
          if (!used.takesTemperature) throw reply.error;
          dialect.takesTemperature = false;
        } else {
          if (used.limitName === 'max_completion_tokens') throw reply.error;
          dialect.limitName = 'max_completion_tokens';
        }
        break;
      case 'output_limit':
        if (reply.tokens >= used.maxOutputTokens) throw reply.error;
        dialect.maxOutputTokens = Math.min(dialect.maxOutputTokens, reply.tokens);
        break;
    }
  }
}

/** About how many tokens a conversation is; chat templates add a few to each message. */
export function promptTokens(messages: readonly Message[]): number {
  return messages.reduce((sum, { content }) => sum + estimateTokens(content) + 4, 0);
}

type Lesson = Exclude<Failure, { kind: 'error' }>;

async function send(
  endpoint: Endpoint,
  request: CompletionRequest,
  dialect: Dialect,
  count: (usage: ModelUsage) => void,
): Promise<Completion | Lesson> {
  const { apiKey, url, requestTimeoutMs: timeoutMs } = endpoint;
  const body = JSON.stringify(bodyOf(endpoint.model, request, dialect));
  let reply: Completion | Failure | undefined;
  try {
    const http = await postJson({ fetch: endpoint.fetch, url, apiKey, body, timeoutMs, signal: request.signal });
    reply = readCompletion(http, apiKey);
  } finally {
    count(reply?.kind === 'completion' ? reply.usage : { ...noUsage(), requests: 1 });
  }
  if (reply.kind === 'error') throw errorOf(reply);
  return reply;
}

function errorOf({ error }: Failure): ModelError {
  return error;
}

function bodyOf(model: string, request: CompletionRequest, dialect: Dialect): object {
  const { format } = dialect;
  return {
    model,
    messages: format === 'json_object' ? sayingJson(request.messages) : request.messages,
    stream: false,
    [dialect.limitName]: Math.min(request.outputTokens, dialect.maxOutputTokens),
    ...(dialect.takesTemperature ? { temperature: 0 } : {}),
    ...(format === 'json_schema'
      ? { response_format: { type: format, json_schema: { name: 'answer', strict: true, schema: request.schema } } }
      : {}),
    ...(format === 'json_object' ? { response_format: { type: format } } : {}),
  };
}

/** DeepSeek and DashScope refuse JSON mode where the prompt does not name JSON. */
function sayingJson(messages: readonly Message[]): readonly Message[] {
  const [first, ...others] = messages;
  if (first === undefined || /json/i.test(first.content)) return messages;
  return [{ ...first, content: `${first.content}\n\nAnswer in JSON.` }, ...others];
}

function lower(a: Format, b: Format): Format {
  return FORMATS.indexOf(a) > FORMATS.indexOf(b) ? a : b;
}
