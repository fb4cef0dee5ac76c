import type { PgBoss } from 'pg-boss';
import type { Sql } from '../../../src/db.ts';
import type { ChunkOutcome } from '../../../src/fanout/expand-task.ts';
import type { FanoutSweepCounts } from '../../../src/fanout/sweep-fanout.ts';
import type { CancelOutcome } from '../../../src/tasks/cancel-task.ts';
import type { ClaimOutcome } from '../../../src/tasks/claim-results.ts';
import type { CreateTaskOutcome } from '../../../src/tasks/create-task.ts';
import type { DeleteOutcome } from '../../../src/tasks/delete-task.ts';
import type { RetryOutcome } from '../../../src/tasks/retry-task.ts';
import type { SettleOutcome } from '../../../src/tasks/settle-result.ts';
import type { Ending } from '../../../src/tasks/settlement.ts';
import type { SweepOutcome } from '../../../src/tasks/sweep-tasks.ts';
import type { TaskLimits } from '../../../src/tasks/task.ts';
import type { TaskMode } from '../../../src/tasks/task-mode.ts';
import type { HeldTask } from '../../support/fanout.ts';
import type { Fetched, HeldClaim, TestBench } from '../../support/fixtures.ts';
import type { Tables } from './tables.ts';

/** What an operation was answered; everything that the rules about steps have to judge by. */
export type Event =
  | { event: 'create'; request: Request; outcome: CreateTaskOutcome['outcome']; taskId: string | undefined }
  | { event: 'expand'; held: HeldTask; outcome: ChunkOutcome }
  | { event: 'giveUp'; held: HeldTask }
  | { event: 'sweep'; counts: FanoutSweepCounts }
  | { event: 'claim'; fetched: Fetched; outcome: ClaimOutcome }
  /** `refused`: the queue would not take the job of the next attempt, because this delivery had been given up. */
  | { event: 'settle'; held: HeldClaim; ending: Ending; outcome: SettleOutcome | 'refused' }
  | { event: 'check'; claims: HeldClaim[]; holding: Set<string> }
  | { event: 'beat'; held: HeldClaim[]; alive: Set<string> }
  | { event: 'lapse' | 'destroy'; jobId: string }
  | { event: 'backdate'; resultId: string }
  | { event: 'age'; taskId: string }
  | { event: 'round'; limit: number; outcome: SweepOutcome }
  | { event: 'cancel'; taskId: string; outcome: CancelOutcome }
  | {
      event: 'retry';
      taskId: string;
      resultIds: string[] | undefined;
      limits: TaskLimits;
      outcome: RetryOutcome | { outcome: 'refused' };
    }
  | { event: 'delete'; taskId: string; outcome: DeleteOutcome }
  | { event: 'expire'; maxResults: number; deleted: number };

export type Request = {
  key: string | null;
  documents: number;
  limits: TaskLimits;
  /** Fan-out: asks for all of a project that has so many documents, and names none. */
  whole?: boolean;
};

/** The events of one kind. */
export type EventOf<K extends Event['event']> = Extract<Event, { event: K }>;
export function eventsOf<K extends Event['event']>(events: readonly Event[], kind: K): EventOf<K>[] {
  return events.filter((event): event is EventOf<K> => event.event === kind);
}

export type WorkerName = 'A' | 'B';
export const WORKERS: readonly WorkerName[] = ['A', 'B'];

/** What a worker has ever had in its hands. Nothing leaves it: a late worker is one that comes back to old things. */
export type Worker = { fetched: Fetched[]; held: HeldClaim[]; expanding: HeldTask[] };
const emptyHanded = (): Worker => ({ fetched: [], held: [], expanding: [] });

/**
 * What the run remembers, and the tables can't tell: who was given what, what was promised, and what the run itself has
 * destroyed. The rows themselves are not modelled; rules compare them from step to step.
 */
export class World {
  readonly workers: Record<WorkerName, Worker> = { A: emptyHanded(), B: emptyHanded() };
  /** All tasks and results that there ever were, oldest first. */
  readonly taskIds: string[] = [];
  readonly resultIds: string[] = [];
  readonly requests = new Map<string, Request>();
  /** The delivery that each attempt was claimed with, and what its settle was told. Both by `attemptKey`. */
  readonly claims = new Map<string, Fetched>();
  readonly verdicts = new Map<string, EventOf<'settle'>>();
  /** The attempt after which a result's spent attempts are counted anew: the last one before its retry. */
  readonly countedFrom = new Map<string, number>();
  /** Jobs that the run has deleted or cancelled behind the product's back. */
  readonly destroyed = new Set<string>();
  /** Tasks whose manager's job was one of them. */
  readonly destroyedManagers = new Set<string>();
  /** Rows, by `attemptKey`, that the run has made look untouched for long. */
  readonly backdated = new Set<string>();
  /** Live jobs of results that have ended, which may be: a sweep, or a settle by a delivery that was given up. */
  readonly leftovers = new Set<string>();
  /** How many full rounds a pending row without a job has outlived. */
  readonly roundsWithoutJob = new Map<string, number>();
  /** The tables after the last step, which are those before the next. */
  tables: Tables | undefined;
  /** Distinguishes the data of every settle. */
  marks = 0;

  hasClaims(): boolean {
    return WORKERS.some((worker) => this.workers[worker].held.length > 0);
  }
}

/** What an operation works on. */
export type Ground = {
  sql: Sql;
  boss: PgBoss;
  bench: TestBench;
  mode: TaskMode;
  documentIds: readonly string[];
  world: World;
};

/** One of a list by a random number: 0 is the newest, so that a shrunk run speaks of recent things. */
export function pick<T>(list: readonly T[], which: number): T | undefined {
  return list.length === 0 ? undefined : list[list.length - 1 - (which % list.length)];
}

/** The rule that a step has broken. */
export function broken(rule: string, detail: unknown): never {
  throw new Error(`${rule}: ${JSON.stringify(detail, (_, value) => (value instanceof Set ? [...value] : value))}`);
}
