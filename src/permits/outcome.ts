import { ExtractionError, toExtractionError } from '../errors.ts';
import { storableMessage } from '../storable.ts';

/** How a call of a stage went, as far as it concerns those who come next. */
export type CallOutcome =
  /** Says nothing about the stage: the caller gave up, or the paper was refused. */
  | { kind: 'none' }
  | { kind: 'success' }
  | { kind: 'failure'; code: string; message: string }
  /** `pauseMs` null: until someone acts. */
  | { kind: 'pause'; pauseMs: number | null; code: string; message: string };

/** When a server asks for a wait and does not say how long. */
const DEFER_MS = 5_000;
/** A server that asks for longer is asked again after this. */
const DEFER_MAX_MS = 3_600_000;

/**
 * What a call's error means for its stage. A wait that a server asks for is everybody's, and a fault of the configuration too;
 * a transient error counts against the stage; a permanent one is the paper's.
 */
export function toOutcome(thrown: unknown): CallOutcome {
  const { errorClass, code, message: text, retryAfterMs } = toExtractionError(thrown);
  const message = publicMessage(text);
  if (errorClass === 'configuration') return { kind: 'pause', pauseMs: null, code, message };
  if (errorClass === 'permanent') return { kind: 'none' };
  if (errorClass === 'transient' && retryAfterMs === undefined) return { kind: 'failure', code, message };
  const askedMs = Math.min(DEFER_MAX_MS, Math.max(0, retryAfterMs ?? DEFER_MS));
  // Up to a tenth more: what a server allows again at one moment should not arrive at that very moment.
  return { kind: 'pause', pauseMs: askedMs * (1 + Math.random() / 10), code, message };
}

/** The error as the caller gets it: a wait that a server asked for spends no attempt, whatever its class was. */
export function toThrown(thrown: unknown): unknown {
  if (!(thrown instanceof ExtractionError)) return thrown;
  const { errorClass, code, message, retryAfterMs } = thrown;
  if (errorClass !== 'transient' || retryAfterMs === undefined) return thrown;
  return new ExtractionError('defer', code, message, { cause: thrown, retryAfterMs });
}

/** Bounded, and without what looks like a key: the pause is shown to everyone who may read the stages. */
function publicMessage(message: string): string {
  const masked = message
    .slice(0, 2000)
    .replace(/\b(bearer|basic)\s+\S+/gi, '$1 ***')
    .replace(/\/\/[^/\s@]+@/g, '//***@')
    .replace(/\bsk-[\w-]+|[\w-]{24,}/g, '***');
  return storableMessage(masked.slice(0, 500));
}
