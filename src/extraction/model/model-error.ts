import { type ErrorClass, ExtractionError } from '../../errors.ts';
import { addUsage, type ModelUsage, noUsage } from './usage.ts';

/** An ExtractionError that says what was used up before it: a refusal or a cut answer is paid for too. */
export class ModelError extends ExtractionError {
  override usage: ModelUsage = noUsage();
}

/**
 * The server says, or its count of tokens shows, that a prompt was longer than the model's context.
 *
 * Permanent where it gets away; whoever can ask with less text catches it and does.
 */
export class PromptTooLong extends ModelError {
  /** The prompt's size by `estimateTokens`. */
  readonly sentTokens: number;
  /** The context that the server named, or that its count of tokens shows. */
  readonly contextTokens: number | undefined;
  /** True where the server answered as if nothing had happened. */
  readonly isSilent: boolean;

  constructor(sentTokens: number, contextTokens: number | undefined, isSilent: boolean) {
    const size = contextTokens === undefined ? '' : ` (about ${contextTokens} tokens)`;
    super(
      'permanent',
      isSilent ? 'prompt_truncated' : 'context_exceeded',
      isSilent
        ? `the model's server cut a prompt of about ${sentTokens} tokens without saying so${size}: give it a larger context`
        : `a prompt of about ${sentTokens} tokens does not fit into the model's context${size}`,
    );
    this.sentTokens = sentTokens;
    this.contextTokens = contextTokens;
    this.isSilent = isSilent;
  }
}

export function modelError(errorClass: ErrorClass, code: string, message: string, retryAfterMs?: number): ModelError {
  return new ModelError(errorClass, code, message, retryAfterMs === undefined ? {} : { retryAfterMs });
}

/**
 * Adds what was used before to an error that is on its way out. What is no ExtractionError, such as the reason of a signal,
 * stays what it is.
 */
export function withUsage(error: unknown, usage: ModelUsage): unknown {
  if (!(error instanceof ExtractionError)) return error;
  const own = error instanceof ModelError ? error : copyOf(error);
  own.usage = addUsage(usage, own.usage);
  return own;
}

function copyOf({ errorClass, code, message, retryAfterMs, cause }: ExtractionError): ModelError {
  return new ModelError(errorClass, code, message, {
    cause,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
}
