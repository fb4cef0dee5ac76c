import { ExtractionError } from '../../errors.ts';
import type { JsonSchema } from './answer-schema.ts';
import { complete, type Message, promptTokens } from './complete.ts';
import {
  createEndpoint,
  type Endpoint,
  type Gate,
  type ModelClientOptions,
  type ModelLimits,
  shrinkLimits,
} from './endpoint.ts';
import { modelError, PromptTooLong, withUsage } from './model-error.ts';
import type { Completion } from './read-completion.ts';
import { addUsage, type ModelUsage, noUsage } from './usage.ts';

/** A blank answer or one that is no JSON is asked for again this often. */
const MAX_REPAIRS = 2;
/** An answer that has faults but can be used is asked for again this often: the paper is paid for each time. */
const MAX_REPAIRS_OF_USABLE = 1;

/** What an answer's content says, and what is wrong with it. Without a value it is of no use at all. */
export type Reading<T> = { value?: T; faults: readonly string[] };

export type ModelRequest<T> = {
  /** Rules and fields. The paper has no place here. */
  system: string;
  /** The paper. */
  user: string;
  schema: JsonSchema;
  read: (content: string) => Reading<T>;
  signal: AbortSignal;
  /** For this request, instead of the client's. */
  gate?: Gate | undefined;
};

export type ModelReply<T> = { value: T; content: string; usage: ModelUsage };

export type ModelClient = {
  readonly model: string;
  /** As far as they are known by now. */
  readonly limits: Readonly<ModelLimits>;
  /** To be called with an error of `ask` before asking again with less. */
  shrink(tooLong: PromptTooLong): void;
  /**
   * Asks, and asks again where that helps: with a larger limit for an answer that was cut, with its faults for an answer
   * that can't be used.
   *
   * @throws ModelError, with the usage: PromptTooLong (`context_exceeded`, `prompt_truncated`); by the server's error;
   *   permanent `model_answer_too_long`, `model_content_filtered`, `model_refused`, `model_answer_invalid`. The signal's
   *   reason when it fires
   */
  ask<T>(request: ModelRequest<T>): Promise<ModelReply<T>>;
};

/**
 * A client of one model at one OpenAI-compatible endpoint. Share it: it remembers what it learns of them.
 *
 * @throws ModelError `model_settings_invalid`
 */
export function createModelClient(options: ModelClientOptions): ModelClient {
  const endpoint = createEndpoint(options);
  return {
    model: endpoint.model,
    limits: endpoint.limits,
    shrink: (tooLong) => shrinkLimits(endpoint.limits, tooLong),
    async ask(request) {
      let usage = noUsage();
      try {
        const { value, content } = await converse(endpoint, request, (more) => {
          usage = addUsage(usage, more);
        });
        return { value, content, usage };
      } catch (error) {
        throw withUsage(error, usage);
      }
    },
  };
}

async function converse<T>(
  endpoint: Endpoint,
  request: ModelRequest<T>,
  count: (usage: ModelUsage) => void,
): Promise<{ value: T; content: string }> {
  const { schema, signal, gate = endpoint.gate } = request;
  const messages: Message[] = [
    { role: 'system', content: request.system },
    { role: 'user', content: request.user },
  ];
  let { outputTokens } = endpoint.limits;
  let isEnlarged = false;
  let usable: { value: T; content: string } | undefined;
  for (let repairs = 0; ; ) {
    let completion: Completion;
    try {
      completion = await complete(endpoint, { messages, schema, outputTokens, signal, gate }, count);
      // Only at first: later the server may count what its cache spared it.
      if (repairs === 0 && !isEnlarged) checkForTruncation(messages, completion.usage);
      checkForRefusal(completion);
    } catch (error) {
      // An answer that has been paid for is not thrown away because its repair failed.
      if (usable !== undefined && error instanceof ExtractionError) return usable;
      throw error;
    }
    if (completion.finishReason === 'length') {
      const larger = Math.min(outputTokens * 2, endpoint.dialect.maxOutputTokens);
      if (usable !== undefined) return usable;
      if (isEnlarged || larger <= outputTokens) throw tooLongAnswer(outputTokens);
      outputTokens = larger;
      isEnlarged = true;
      continue;
    }
    const { content } = completion;
    const { value, faults } = content.trim() === '' ? { faults: ['it is empty'] } : request.read(content);
    if (value !== undefined) usable = { value, content };
    if (usable !== undefined && (faults.length === 0 || repairs >= MAX_REPAIRS_OF_USABLE)) return usable;
    if (repairs >= MAX_REPAIRS) {
      const message = `the model's answer can't be used, also when asked again: ${listed(faults, 3, '; ')}`;
      throw modelError('permanent', 'model_answer_invalid', message);
    }
    repairs += 1;
    messages.push(
      // Roles must take turns in many chat templates, and none may be empty.
      { role: 'assistant', content: content.trim() === '' ? '(empty)' : content.slice(0, MAX_ECHO_LENGTH) },
      { role: 'user', content: repairMessage(faults) },
    );
  }
}

const MAX_ECHO_LENGTH = 40_000;

function repairMessage(faults: readonly string[]): string {
  return `Your answer can't be used:\n- ${listed(faults, 20, '\n- ')}\nAnswer again with the whole JSON object and nothing else.`;
}

function listed(faults: readonly string[], most: number, separator: string): string {
  const shown = faults.slice(0, most).map((fault) => fault.slice(0, 300));
  if (faults.length > most) shown.push(`and ${faults.length - most} more`);
  return shown.join(separator);
}

/**
 * A server that cut the prompt reports less than half of the tokens that it must have been (Ollama does, with status 200).
 * One that reports none tells nothing.
 */
function checkForTruncation(messages: readonly Message[], usage: ModelUsage): void {
  const sent = promptTokens(messages);
  const { promptTokens: read } = usage;
  if (read === 0 || read >= sent / 2) return;
  // So few tokens are no context of today: the server counts in some other way, and its number says nothing.
  throw new PromptTooLong(sent, read >= 512 ? read : undefined, true);
}

function checkForRefusal({ finishReason, refusal }: Completion): void {
  if (finishReason === 'content_filter') {
    throw modelError('permanent', 'model_content_filtered', "the model's server withholds the answer: content filter");
  }
  if (refusal !== undefined) throw modelError('permanent', 'model_refused', 'the model refuses to answer');
}

function tooLongAnswer(outputTokens: number): Error {
  const message = `the model's answer is longer than ${outputTokens} tokens, reasoning included`;
  return modelError('permanent', 'model_answer_too_long', message);
}
