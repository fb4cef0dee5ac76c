import type { PgBoss } from 'pg-boss';
import type { Sql } from '../db.ts';
import type { JobLimits } from '../queue.ts';
import { type SettleOutcome, settleResult, settleResults } from '../tasks/settle-result.ts';
import { type EncodedSettlement, encodeSettlement, type Settlement } from '../tasks/settlement.ts';
import type { Counting } from '../tasks/task-mode.ts';
import type { Settle } from './run-attempt.ts';

type Waiting = {
  settlement: EncodedSettlement;
  resolve: (outcome: SettleOutcome) => void;
  reject: (error: unknown) => void;
};

/** The most that one transaction settles, and the most characters of JSON that it carries. */
const GROUP = 100;
const GROUP_LENGTH = 4 * 1024 * 1024;

/**
 * Settles the attempts of this process, those at results of one task together.
 *
 * Whoever comes first is settled at once. Who comes while that is under way goes with the next group, which starts when it has
 * ended: nobody waits for a timer, and the busier the process, the larger its groups. A group is of one task, so that none
 * waits for the counter of a stranger's.
 *
 * Each caller has its own outcome. When a group fails, each of it is settled for itself, and a row that somebody else holds is
 * waited for alone: nobody suffers for a neighbour.
 */
export function createSettler(deps: { sql: Sql; boss: PgBoss; limits: JobLimits; mode: Counting }): Settle {
  const { sql, boss, limits, mode } = deps;
  /** By task, while a group of it is under way. */
  const queues = new Map<string, Waiting[]>();

  const settleAlone = ({ settlement, resolve, reject }: Waiting): void => {
    settleResult(sql, boss, settlement, limits, mode).then(resolve, reject);
  };

  const settleGroup = async (group: Waiting[]): Promise<void> => {
    const [first] = group;
    if (first === undefined) return;
    try {
      const outcomes = await settleResults(
        sql,
        boss,
        group.map(({ settlement }) => settlement),
        limits,
        mode,
      );
      group.forEach((waiting, i) => {
        const outcome = outcomes[i];
        if (outcome === undefined || outcome === 'locked') settleAlone(waiting);
        else waiting.resolve(outcome);
      });
    } catch (error) {
      if (group.length === 1) first.reject(error);
      else for (const waiting of group) settleAlone(waiting);
    }
  };

  const run = async (taskId: string, queue: Waiting[]): Promise<void> => {
    while (queue.length > 0) await settleGroup(takeGroup(queue));
    queues.delete(taskId);
  };

  return async (settlement: Settlement) => {
    const encoded = encodeSettlement(settlement);
    return await new Promise((resolve, reject) => {
      const waiting = { settlement: encoded, resolve, reject };
      const queue = queues.get(settlement.taskId);
      if (queue !== undefined) return void queue.push(waiting);
      const started = [waiting];
      queues.set(settlement.taskId, started);
      void run(settlement.taskId, started);
    });
  };
}

/** Takes the next ones out of the queue: at least one, and no more than one transaction should carry. */
function takeGroup(queue: Waiting[]): Waiting[] {
  let length = 0;
  let count = 0;
  for (const { settlement } of queue.slice(0, GROUP)) {
    length += settlement.row.length;
    if (count > 0 && length > GROUP_LENGTH) break;
    count += 1;
  }
  return queue.splice(0, count);
}
