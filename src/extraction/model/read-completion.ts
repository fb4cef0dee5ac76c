import * as v from 'valibot';
import { classifyFailure, type Failure } from './classify-failure.ts';
import { modelError } from './model-error.ts';
import type { HttpReply } from './send-request.ts';
import { type ModelUsage, readUsage } from './usage.ts';

export type Completion = {
  kind: 'completion';
  /** Empty where the model said nothing, or only thought. */
  content: string;
  finishReason: string;
  refusal: string | undefined;
  usage: ModelUsage;
};

const part = v.looseObject({ text: v.optional(v.string()) });

const completion = v.looseObject({
  choices: v.array(
    v.looseObject({
      finish_reason: v.nullish(v.string()),
      message: v.nullish(
        v.looseObject({
          // Some servers send the content in parts.
          content: v.nullish(v.union([v.string(), v.array(part)])),
          refusal: v.nullish(v.string()),
        }),
      ),
    }),
  ),
  usage: v.optional(v.unknown()),
});

/**
 * Reads a reply of `/chat/completions`: the completion, or what its failure means.
 *
 * Routers report the failure of the server behind them with status 200 and an `error` in the body; its `code` is then the
 * status. A body that is no completion is a body that ended early, or a proxy's: `model_response_unreadable`, transient.
 */
export function readCompletion(reply: HttpReply, apiKey: string | undefined): Completion | Failure {
  if (reply.status < 200 || reply.status > 299) return classifyFailure(reply, apiKey);
  const body = parse(reply.body);
  const result = v.safeParse(completion, body);
  if (result.success) {
    const { choices, usage } = result.output;
    const message = choices[0]?.message;
    const content = message?.content ?? '';
    return {
      kind: 'completion',
      content: typeof content === 'string' ? content : content.map(({ text }) => text ?? '').join(''),
      finishReason: choices[0]?.finish_reason ?? '',
      refusal: message?.refusal || undefined,
      usage: readUsage(usage),
    };
  }
  const status = statusInside(body);
  if (status !== undefined) return classifyFailure({ ...reply, status }, apiKey);
  const message = "the model's server answered with something that is no chat completion";
  return { kind: 'error', error: modelError('transient', 'model_response_unreadable', message) };
}

function parse(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

const failed = v.object({ error: v.union([v.string(), v.looseObject({ code: v.optional(v.unknown()) })]) });

/** A failure without a status of its own is the server's. */
function statusInside(body: unknown): number | undefined {
  const result = v.safeParse(failed, body);
  if (!result.success) return undefined;
  const code = typeof result.output.error === 'string' ? undefined : Number(result.output.error.code);
  return code !== undefined && Number.isInteger(code) && code >= 400 && code <= 599 ? code : 500;
}
