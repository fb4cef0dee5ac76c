import * as v from 'valibot';
import { MAX_DOCUMENTS, RESULT_STATUSES, TASK_STATUSES, type TaskLimits } from '../tasks/task.ts';
import { Problem } from './problem.ts';
import { optional } from './schemas.ts';

/** How many of many bad ids are named. */
export const MAX_NAMED = 20;
/** What a column of integers holds. */
const MAX_COUNT = 2 ** 31 - 1;

export const taskStatus = optional(v.picklist(TASK_STATUSES, `must be one of ${TASK_STATUSES.join(', ')}`));
export const resultStatus = optional(v.picklist(RESULT_STATUSES, `must be one of ${RESULT_STATUSES.join(', ')}`));

const DATE_TIME = /^\d{4}-(\d{2})-(\d{2})T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/i;

/** A moment as RFC 3339 writes it, with its offset from UTC. */
const moment = v.pipe(
  v.string('must be a text'),
  v.check(isDateTime, 'must be a date and time with an offset, such as 2030-01-31T18:00:00Z'),
  v.transform((value) => new Date(value)),
);

function isDateTime(value: string): boolean {
  const [, month, day] = DATE_TIME.exec(value) ?? [];
  if (month === undefined || day === undefined) return false;
  // The 31st of February would silently become March.
  const date = new Date(`${value.slice(0, 10)}T00:00:00Z`);
  return date.getUTCMonth() + 1 === Number(month) && date.getUTCDate() === Number(day);
}

/** What ends a task before its results do, in the body of a create and of a retry. */
export const limits = {
  deadlineAt: optional(moment),
  maxFailedCount: optional(
    v.pipe(
      v.number('must be a whole number'),
      v.integer('must be a whole number'),
      v.minValue(0, 'must be at least 0'),
      v.maxValue(MAX_COUNT, `must be at most ${MAX_COUNT}`),
    ),
  ),
  maxFailedPercent: optional(
    v.pipe(v.number('must be a number'), v.minValue(0, 'must be at least 0'), v.maxValue(100, 'must be at most 100')),
  ),
};

type LimitsBody = {
  deadlineAt?: Date | undefined;
  maxFailedCount?: number | undefined;
  maxFailedPercent?: number | undefined;
};

export function toLimits({ deadlineAt, maxFailedCount, maxFailedPercent }: LimitsBody): TaskLimits {
  return {
    deadlineAt: deadlineAt ?? null,
    maxFailedCount: maxFailedCount ?? null,
    maxFailedPercent: maxFailedPercent ?? null,
  };
}

/** A deadline that lies in the past: there is nothing that it could still end in time. */
export function deadlinePassed(): Problem {
  return new Problem(422, 'deadline_in_the_past', 'the deadline must lie in the future', {
    errors: [{ path: 'deadlineAt', message: 'must lie in the future' }],
  });
}

/**
 * Refuses a body whose list is far too long before a look at its entries, of which each would be a fault to report.
 *
 * @throws Problem 422
 */
export function refuseMany(path: string, kind: Kind, body: object): void {
  const ids = (body as Record<string, unknown>)[path];
  if (!Array.isArray(ids) || ids.length <= MAX_DOCUMENTS) return;
  throw new Problem(422, `too_many_${kind}`, `a task may have at most ${MAX_DOCUMENTS} ${kind}`, {
    errors: [{ path, message: `must name at most ${MAX_DOCUMENTS} ${kind}` }],
  });
}

type Kind = 'documents' | 'results';

/**
 * Refuses a list with the same id twice. They are in lower case by now, so that one id in two spellings is seen.
 *
 * @throws Problem 422
 */
export function refuseTwins(path: string, kind: Kind, ids: readonly string[]): void {
  const first = new Map<string, number>();
  const twins = ids.flatMap((id, index) => {
    const earlier = first.get(id);
    if (earlier !== undefined) return [{ index, id, earlier }];
    first.set(id, index);
    return [];
  });
  if (twins.length === 0) return;
  throw new Problem(422, `duplicate_${kind}`, `${twins.length} of the ${kind} are named before already`, {
    errors: twins.slice(0, MAX_NAMED).map(({ index, id, earlier }) => ({
      path: `${path}[${index}]`,
      message: `${id} is ${path}[${earlier}] too`,
    })),
  });
}
