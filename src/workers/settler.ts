import type { PgBoss } from 'pg-boss';
import type { Sql } from '../db.ts';
import { type GroupedCall, groupCalls, type Pending } from '../group-calls.ts';
import type { JobLimits } from '../queue.ts';
import { type SettleOutcome, settleResult, settleResults } from '../tasks/settle-result.ts';
import { type EncodedSettlement, encodeSettlement } from '../tasks/settlement.ts';
import type { Counting } from '../tasks/task-mode.ts';
import type { Settle } from './run-attempt.ts';

/** The most that one transaction settles, and the most characters of JSON that it carries. */
const GROUP = 100;
const GROUP_LENGTH = 4 * 1024 * 1024;

/**
 * Settles the attempts of this process, those at results of one task together. A group is of one task, so that none waits for
 * the counter of a stranger's.
 *
 * Each caller has its own outcome. When a group fails, each of it is settled for itself, and a row that somebody else holds is
 * waited for alone.
 */
export function createSettler(deps: { sql: Sql; boss: PgBoss; limits: JobLimits; mode: Counting }): Settle {
  const { sql, boss, limits, mode } = deps;
  /** By task, while a group of it is under way. */
  const groups = new Map<string, GroupedCall<EncodedSettlement, SettleOutcome>>();

  const groupOf = (taskId: string): GroupedCall<EncodedSettlement, SettleOutcome> => {
    const known = groups.get(taskId);
    if (known !== undefined) return known;
    const group = groupCalls<EncodedSettlement, SettleOutcome>({
      take,
      async together(settlements) {
        const outcomes = await settleResults(sql, boss, settlements, limits, mode);
        return outcomes.map((outcome) => (outcome === 'locked' ? undefined : outcome));
      },
      alone: (settlement) => settleResult(sql, boss, settlement, limits, mode),
      onIdle: () => groups.delete(taskId),
    });
    groups.set(taskId, group);
    return group;
  };

  return async (settlement) => await groupOf(settlement.taskId)(encodeSettlement(settlement));
}

function take(queue: Pending<EncodedSettlement, SettleOutcome>[]): Pending<EncodedSettlement, SettleOutcome>[] {
  let length = 0;
  let count = 0;
  for (const { input } of queue.slice(0, GROUP)) {
    length += input.row.length;
    if (count > 0 && length > GROUP_LENGTH) break;
    count += 1;
  }
  return queue.splice(0, count);
}
