import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Dialect, dialects, type Problem, type Ways } from './model-dialects.ts';

/** What a scripted model says of one field; undefined: the paper does not say. */
export type ScriptedAnswer = { value: unknown; quote: string | null } | undefined;

export type ChatBody = {
  model: string;
  messages: { role: string; content: string }[];
  response_format?: { type: string; json_schema?: { strict?: boolean; schema?: Record<string, unknown> } };
  [setting: string]: unknown;
};

/** What becomes of one request, instead of an answer by the script. */
export type Fault =
  | { status: number; headers?: Record<string, string>; body?: unknown }
  | { message: object; finishReason?: string; usage?: object }
  | { raw: string }
  | { ends: 'at once' | 'in the body' }
  | { silence: true }
  | { trickleEveryMs: number };

export type ModelServer = {
  baseUrl: string;
  /** Every request, in the order of arrival. */
  readonly requests: { body: ChatBody; authorization: string | undefined; path: string }[];
  readonly running: { now: number; most: number };
  /** Each request takes the first one. */
  readonly faults: Fault[];
  close: () => void;
};

export type ModelServerOptions = {
  dialect?: Dialect;
  /** Any other is refused. */
  apiKey?: string;
  /** Longer prompts are refused, or cut in silence, as the dialect has it. */
  contextTokens?: number;
  answer?: (field: { key: string; paper: string; body: ChatBody }) => ScriptedAnswer;
};

/** A server of the OpenAI-compatible chat API on the loopback, with the ways of one of its kinds and a scripted model. */
export async function modelServer(options: ModelServerOptions = {}): Promise<ModelServer> {
  const dialect: Ways = dialects[options.dialect ?? 'openai'];
  const requests: ModelServer['requests'] = [];
  const faults: Fault[] = [];
  const running = { now: 0, most: 0 };
  const timers = new Set<NodeJS.Timeout>();

  const server = createServer((request, response) => {
    running.now += 1;
    running.most = Math.max(running.most, running.now);
    response.on('close', () => {
      running.now -= 1;
    });
    void serve(request, response);
  });

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = '';
    for await (const chunk of request) text += chunk;
    const body = JSON.parse(text) as ChatBody;
    const { authorization } = request.headers;
    requests.push({ body, authorization, path: request.url ?? '' });
    const fault = faults.shift();
    if (fault !== undefined) return fail(response, fault);
    if (options.apiKey !== undefined && authorization !== `Bearer ${options.apiKey}`) {
      return reply(response, 401, { error: { message: `Incorrect API key provided: ${authorization}` } });
    }
    const problem = dialect.check(body);
    if (problem !== undefined) return refuse(response, problem);
    const { contextTokens = Number.POSITIVE_INFINITY } = options;
    const promptTokens = countTokens(body);
    if (promptTokens > contextTokens && dialect.tooLong !== undefined) {
      return refuse(response, dialect.tooLong(promptTokens, contextTokens));
    }
    const read = Math.min(promptTokens, contextTokens);
    reply(response, 200, completion(dialect.speak(scripted(body, promptTokens - read), body), read));
  }

  /** A server that cuts in silence drops what came first of the paper. */
  function scripted(body: ChatBody, tokensCut: number): Record<string, unknown> {
    const paper = paperOf(body).slice(tokensCut * CHARACTERS_PER_TOKEN);
    return Object.fromEntries(
      keysOf(body).map((key) => {
        const said = options.answer?.({ key, paper, body });
        return [key, said ? { ...said, status: 'found' } : { value: null, quote: null, status: 'not_reported' }];
      }),
    );
  }

  function fail(response: ServerResponse, fault: Fault): void {
    if ('status' in fault) {
      reply(response, fault.status, fault.body ?? {}, fault.headers);
    } else if ('message' in fault) {
      const {
        message,
        finishReason: finish_reason = 'stop',
        usage = { prompt_tokens: 0, completion_tokens: 7 },
      } = fault;
      reply(response, 200, { choices: [{ index: 0, finish_reason, message }], usage });
    } else if ('raw' in fault) {
      response.end(fault.raw);
    } else if ('trickleEveryMs' in fault) {
      response.writeHead(200, { 'content-type': 'application/json' });
      timers.add(setInterval(() => response.write(' '), fault.trickleEveryMs));
    } else if ('ends' in fault && fault.ends === 'in the body') {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': '1000' });
      response.write('{"choices": [', () => response.destroy());
    } else if ('ends' in fault) {
      response.destroy();
    }
  }

  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requests,
    running,
    faults,
    close() {
      for (const timer of timers) clearInterval(timer);
      server.close();
      server.closeAllConnections();
    },
  };
}

function refuse(response: ServerResponse, { status, body }: Problem): void {
  reply(response, status, body);
}

function reply(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(typeof body === 'string' ? body : JSON.stringify(body));
}

function completion(content: string, prompt_tokens: number): object {
  const completion_tokens = Math.ceil(content.length / CHARACTERS_PER_TOKEN);
  return {
    object: 'chat.completion',
    choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content, refusal: null } }],
    usage: { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens },
  };
}

/** Not the client's measure. */
const CHARACTERS_PER_TOKEN = 4;

function countTokens({ messages }: ChatBody): number {
  return Math.ceil(messages.reduce((sum, { content }) => sum + content.length, 0) / CHARACTERS_PER_TOKEN);
}

/** What stands between the two marks of the first user message. */
export function paperOf({ messages }: ChatBody): string {
  const user = messages.find(({ role }) => role === 'user')?.content ?? '';
  return /<<<([0-9a-f]+)\n([\s\S]*)\n\1>>>/.exec(user)?.[2] ?? '';
}

/** The fields by the schema, or by the list in the system message where there is none. */
function keysOf({ messages, response_format: format }: ChatBody): string[] {
  const properties = format?.json_schema?.schema?.properties;
  if (typeof properties === 'object' && properties !== null) return Object.keys(properties);
  return [...(messages[0]?.content ?? '').matchAll(/^- "(\w+)" \(/gm)].map(([, key = '']) => key);
}
