import { v7 as uuidv7 } from 'uuid';
import type { HeldJob } from '../queue.ts';
import { storableJson, storableMessage } from '../storable.ts';

/** How an attempt ended, as its worker saw it. */
export type Ending =
  | { kind: 'completed'; data: object; usage?: object | undefined }
  | { kind: 'error'; code: string; message: string; usage?: object | undefined }
  /** A transient error: spends an attempt, and becomes an error when it was the last. */
  | { kind: 'retry'; code: string; message: string; delayMs: number; usage?: object | undefined }
  /** Not the paper's fault: back to pending for later, and nothing is spent. */
  | { kind: 'deferred' | 'released'; code: string; message: string; delayMs: number; usage?: object | undefined };

export type Settlement = {
  taskId: string;
  resultId: string;
  /** The fencing token of the claim. */
  attempt: number;
  /** The delivery that is completed in the same transaction. */
  job: HeldJob;
  ending: Ending;
};

/** A settlement whose ending is written out as JSON, so that what can't be is found before it meets any other. */
export type EncodedSettlement = Settlement & {
  row: string;
  /** Where the ending may lead to another attempt. */
  nextJobId: string | undefined;
};

/** @throws RangeError, TypeError when the data can't be written as JSON: a circle, a depth beyond the stack */
export function encodeSettlement(settlement: Settlement): EncodedSettlement {
  const { resultId, attempt, ending } = settlement;
  const nextJobId = ending.kind === 'completed' || ending.kind === 'error' ? undefined : uuidv7();
  const row = JSON.stringify({
    result_id: resultId,
    attempt,
    kind: ending.kind,
    spent: ending.kind === 'error' || ending.kind === 'retry' ? 1 : 0,
    ...(ending.kind === 'completed'
      ? { data: storableJson(ending.data) }
      : { code: ending.code, message: storableMessage(ending.message) }),
    ...(ending.usage === undefined ? {} : { usage: storableJson(ending.usage) }),
    next_job_id: nextJobId,
  });
  return { ...settlement, nextJobId, row };
}
