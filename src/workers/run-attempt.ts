import { setTimeout as sleep } from 'node:timers/promises';
import { isDatabaseAway, isRefusedValue, isWorthAnotherTry } from '../db.ts';
import type { ContentReader } from '../documents/content-reader.ts';
import { permanent, toExtractionError } from '../errors.ts';
import type { ExtractionEngine, Usage } from '../extraction/engine.ts';
import { describeError, type Logger } from '../log.ts';
import type { HeldJob } from '../queue.ts';
import type { Claim } from '../tasks/claim-results.ts';
import type { SettleOutcome } from '../tasks/settle-result.ts';
import type { Ending, Settlement } from '../tasks/settlement.ts';
import type { TemplateReader } from '../templates/template-reader.ts';
import { backoffMs } from './backoff.ts';
import type { Slots } from './slots.ts';
import { startTimeLimit } from './time-limit.ts';

/** Why a running attempt is told to stop; given as the reason of its AbortSignal. */
export type StopReason = 'claim_lost' | 'shutdown';

export type AttemptDeps = {
  engine: ExtractionEngine;
  extractionTimeoutMs: number;
  retryDelayMs: number;
  retryDelayMaxMs: number;
};

/** Writes how an attempt ended; see settle-result.ts. */
export type Settle = (settlement: Settlement) => Promise<SettleOutcome>;

/** What the attempts of one process share. */
export type AttemptParts = AttemptDeps & {
  settle: Settle;
  enterSlot: Slots['enterWithin'];
  noteWait: Slots['noteWait'];
  readTemplate: TemplateReader;
  readContent: ContentReader;
};

/**
 * One attempt at one result, from the claim to the settle. Never throws: what can't be settled is logged, and the heartbeat
 * that stops with this attempt brings the result to another worker.
 *
 * @param stop fires with a StopReason
 */
export async function runAttempt(
  deps: AttemptParts,
  claim: Claim,
  job: HeldJob,
  stop: AbortSignal,
  log: Logger,
): Promise<SettleOutcome | 'abandoned'> {
  const ending = await extract(deps, claim, stop, log);
  if (ending === undefined) return 'abandoned';
  const { taskId, resultId, attempt } = claim;
  return await settlePatiently(deps.settle, { taskId, resultId, attempt, job, ending }, stop, log);
}

/** How the extraction ended, or undefined if the claim was lost meanwhile and there is nothing to say any more. */
async function extract(deps: AttemptParts, claim: Claim, stop: AbortSignal, log: Logger): Promise<Ending | undefined> {
  const time = startTimeLimit(deps.extractionTimeoutMs, stop);
  const { signal } = time;
  let leaveSlot: (() => void) | undefined;
  try {
    const template = await orAborted(deps.readTemplate(claim.templateId), signal);
    if (template === undefined) throw permanent('template_missing', 'The template of this task is gone.');
    const content = await orAborted(deps.readContent(claim.storageKey), signal);
    if (content === undefined) throw permanent('document_missing', 'The document was deleted before it was read.');
    leaveSlot = await time.whileWaiting(waitForSlot(deps, stop));
    if (leaveSlot === undefined) return noFreeSlot;
    const { filename, mediaType } = claim;
    const output = await orAborted(
      deps.engine.extract({
        taskId: claim.taskId,
        content,
        filename,
        mediaType,
        fields: template.fields,
        signal,
        whileWaiting: time.whileWaiting,
      }),
      signal,
    );
    return { kind: 'completed', data: output.data, usage: output.usage };
  } catch (error) {
    if (stop.aborted) return whenStopped(stop.reason as StopReason);
    if (signal.aborted) {
      const message = `The extraction took longer than ${deps.extractionTimeoutMs / 1000} s.`;
      return whenTransient(deps, claim, 'extraction_timeout', message);
    }
    return whenFailed(deps, claim, error, log);
  } finally {
    time.clear();
    // Not the settle, which needs no slot.
    leaveSlot?.();
  }
}

/** A result that was claimed ahead of a free slot is given to others if none becomes free. */
const SLOT_WAIT_MS = 2000;
const noFreeSlot: Ending = {
  kind: 'released',
  code: 'no_free_slot',
  message: 'No slot of the worker became free for it.',
  delayMs: 0,
};

/** Undefined when it waited in vain. @throws the reason of `stop` */
async function waitForSlot(
  { enterSlot, noteWait }: AttemptParts,
  stop: AbortSignal,
): Promise<(() => void) | undefined> {
  const leave = await enterSlot(SLOT_WAIT_MS, stop);
  if (leave === undefined) noteWait(SLOT_WAIT_MS);
  return leave;
}

/** An engine that does not listen to its signal must not keep the slot: its late answer goes nowhere. */
function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

function whenStopped(reason: StopReason): Ending | undefined {
  if (reason === 'claim_lost') return undefined;
  return { kind: 'released', code: 'worker_stopped', message: 'The worker was told to stop.', delayMs: 0 };
}

function whenTransient(deps: AttemptDeps, claim: Claim, code: string, message: string, usage?: Usage): Ending {
  const { retryDelayMs: baseMs, retryDelayMaxMs: maxMs } = deps;
  return { kind: 'retry', code, message, delayMs: backoffMs(claim.failedAttempts + 1, { baseMs, maxMs }), usage };
}

/** An unknown error is transient; a database that is away is nobody's paper's fault and spends nothing. */
function whenFailed(deps: AttemptDeps, claim: Claim, error: unknown, log: Logger): Ending {
  if (isDatabaseAway(error)) {
    return { kind: 'deferred', code: 'database_away', message: 'The database was not reached.', delayMs: 1000 };
  }
  const { errorClass, code, message, retryAfterMs, usage } = toExtractionError(error);
  switch (errorClass) {
    case 'permanent':
      return { kind: 'error', code, message, usage };
    case 'transient':
      log.warn('attempt failed', { code, error: describeError(error) });
      return whenTransient(deps, claim, code, message, usage);
    case 'defer':
      return { kind: 'deferred', code, message, delayMs: retryAfterMs ?? deps.retryDelayMs, usage };
    case 'configuration':
      log.error('an operator must act: results wait', { code, error: describeError(error) });
      return { kind: 'deferred', code, message, delayMs: retryAfterMs ?? 60_000, usage };
  }
}

/** The longest that a finished extraction waits for a database to come back before it is left to another worker. */
const SETTLE_FOR_MS = 60_000;
/** The same when the process is told to stop. */
const SETTLE_AT_STOP_MS = 2_000;

/**
 * Writes the ending. An extraction may have cost minutes and money, so a database that is away for a moment does not lose
 * it; trying again is safe because the settle is fenced. Values that can't be stored, whoever tries, make the result an
 * error; any other trouble of the database is not the paper's fault.
 */
async function settlePatiently(
  settle: Settle,
  settlement: Settlement,
  stop: AbortSignal,
  log: Logger,
): Promise<SettleOutcome | 'abandoned'> {
  const startedAt = Date.now();
  for (let tries = 1; ; tries++) {
    try {
      return await settle(settlement);
    } catch (error) {
      if (settlement.ending.kind === 'completed' && isUnstorable(error)) {
        log.error('extracted values could not be stored', { error: describeError(error) });
        const message = 'The extracted values could not be stored.';
        const ending: Ending = { kind: 'error', code: 'result_unstorable', message };
        return await settlePatiently(settle, { ...settlement, ending }, stop, log);
      }
      const lost = stop.aborted && stop.reason === 'claim_lost';
      const patienceMs = stop.aborted ? SETTLE_AT_STOP_MS : SETTLE_FOR_MS;
      if (lost || !isWorthAnotherTry(error) || Date.now() - startedAt > patienceMs) {
        log.error('attempt could not be settled: left to another worker', { error: describeError(error) });
        return 'abandoned';
      }
      log.warn('settle failed, trying again', { tries, error: describeError(error) });
      await sleep(Math.min(5000, 100 * 2 ** tries) * (0.5 + Math.random() / 2), undefined, { signal: stop }).catch(
        () => {},
      );
    }
  }
}

/** PostgreSQL refuses the values, or they can't even be written as JSON (a circle, a depth beyond the stack). */
function isUnstorable(error: unknown): boolean {
  return isRefusedValue(error) || error instanceof RangeError || error instanceof TypeError;
}
