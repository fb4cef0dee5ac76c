import { ExtractionError } from '../../errors.ts';
import { pause } from './deadline.ts';
import type { Conversion } from './dialect.ts';

/** A running task outlives a blip of the network or a proxy: so many polls may fail in a row. */
const MAX_FAILED_POLLS = 5;

/** A pause that a server asks for between two polls is kept if it is short; a longer one ends the attempt. */
const MAX_POLL_PAUSE_MS = 60_000;

/**
 * Asks until there is an answer: at first every `pollIntervalMs`, then less and less often down to a fifth of that.
 *
 * @param ask one poll: undefined while the task is not done; throws what ends the task, or a transient error or a deferral
 *   where only the poll went wrong
 */
export async function pollUntil<T>(
  { pollIntervalMs, signal }: Pick<Conversion, 'pollIntervalMs' | 'signal'>,
  ask: () => Promise<T | undefined>,
  { atOnce = false } = {},
): Promise<T> {
  let waitMs = atOnce ? 0 : pollIntervalMs;
  let failed = 0;
  for (;;) {
    await pause(waitMs, signal);
    waitMs = Math.min(Math.max(waitMs * 1.25, pollIntervalMs), pollIntervalMs * 5);
    try {
      const answer = await ask();
      if (answer !== undefined) return answer;
      failed = 0;
    } catch (error) {
      failed += 1;
      if (failed === MAX_FAILED_POLLS || !mayPass(error)) throw error;
      if (error.retryAfterMs !== undefined) await pause(error.retryAfterMs, signal);
    }
  }
}

/** Wraps what ends a task although its class says "try again", so that the poll is not mistaken for the culprit. */
export class TaskFailed extends Error {
  override readonly name = 'TaskFailed';
  readonly failure: ExtractionError;

  constructor(failure: ExtractionError) {
    super(failure.message);
    this.failure = failure;
  }
}

function mayPass(error: unknown): error is ExtractionError {
  if (!(error instanceof ExtractionError)) return false;
  if (error.errorClass === 'transient') return true;
  return error.errorClass === 'defer' && (error.retryAfterMs ?? 0) <= MAX_POLL_PAUSE_MS;
}
