import type { Usage } from './extraction/engine.ts';

/**
 * The four classes of an extraction error decide what becomes of the paper:
 *
 * - `permanent`      it will not get better: the result ends as an error at once
 * - `transient`      it may: back to pending with exponential backoff, and an attempt is spent
 * - `defer`          a server asked for a wait: back to pending until then, nothing is spent
 * - `configuration`  the operator must act: no paper fails for it, and nothing is spent
 */
export type ErrorClass = 'permanent' | 'transient' | 'defer' | 'configuration';

/** An error with a stable code that clients may rely on, and the class that says how to go on. */
export class ExtractionError extends Error {
  override readonly name = 'ExtractionError';
  readonly code: string;
  readonly errorClass: ErrorClass;
  /** For `defer` and `configuration`: how long to wait before the next try. */
  readonly retryAfterMs: number | undefined;
  /** What was used up before it: a refused or unusable answer is paid for too. */
  usage: Usage | undefined;

  constructor(
    errorClass: ErrorClass,
    code: string,
    message: string,
    options: { cause?: unknown; retryAfterMs?: number } = {},
  ) {
    super(message, { cause: options.cause });
    this.errorClass = errorClass;
    this.code = code;
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** Shorthand for the commonest kind. */
export function permanent(code: string, message: string, cause?: unknown): ExtractionError {
  return new ExtractionError('permanent', code, message, { cause });
}

/** An unknown error is transient: a bug or a blip must not cost a paper before its retries are used up. */
export function toExtractionError(error: unknown): ExtractionError {
  if (error instanceof ExtractionError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new ExtractionError('transient', 'unexpected_error', message, { cause: error });
}
