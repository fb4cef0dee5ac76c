import type { PgBoss } from 'pg-boss';
import type { Sql, Tx } from '../db.ts';
import type { JobLimits, ResultQueue } from '../queue.ts';
import type { Progress, StatusReason, TaskModeName, TaskStatus } from './task.ts';

/** A task whose row has just been inserted, in the transaction that goes on to fill it. */
export type NewTask = {
  taskId: string;
  createdAt: Date;
  projectId: string;
  /** Distinct ids, in the order in which the results shall be listed; null: all documents of the project. */
  documentIds: readonly string[] | null;
};

/** `documentIds` names at most twenty of the `count` that are not in the project. */
export type UnknownDocuments = { outcome: 'unknown_documents'; count: number; documentIds: string[] };

export type BeginOutcome = UnknownDocuments | { outcome: 'begun' /** How many are made already. */; results: number };

/** How the counts of a task change: by results that ended, or, below zero, by results that a retry has put back. */
export type CountChange = { taskId: string; success: number; failed: number; cancelled: number };

/** What whoever ends results must know of their mode. */
export type Counting = {
  /** Delivers the results. */
  queue: ResultQueue;
  /** Told of every change of results to or from a terminal state, in the same transaction and after it. */
  count(tx: Tx, changes: readonly CountChange[]): Promise<void>;
};

/**
 * What differs between the modes. All else of a result's life, from its claim to its settle, its sweeps and its retry, is the
 * same for both, and is told by this where jobs are delivered and who counts.
 */
export type TaskMode = Counting & {
  name: TaskModeName;
  /** Makes what a new task begins with. A refusal rolls back the whole create. */
  begin(tx: Tx, boss: PgBoss, task: NewTask, limits: JobLimits): Promise<BeginOutcome>;
  /** Closes open tasks that are complete. Answers their ids. */
  close(tx: Tx, options: { limit: number }): Promise<string[]>;
  /** Ends open tasks that have lost what only this mode has. Answers how many. */
  sweep?(tx: Tx, boss: PgBoss, options: { limit: number }): Promise<number>;
  /**
   * A retry has locked the task, and will put results back. Answers whether the task goes on even if there are none, because
   * its results were not all made when it ended.
   */
  resume(tx: Tx, boss: PgBoss, taskId: string, limits: JobLimits): Promise<boolean>;
  /** The exact counts of one task, from one snapshot; undefined when it is gone. */
  progress(sql: Sql | Tx, taskId: string): Promise<TaskState | undefined>;
};

/** Where a task stands. */
export type TaskState = {
  status: TaskStatus;
  statusReason: StatusReason | null;
  /** Of fan-out tasks: whether results are still being made. */
  expanding?: boolean;
  progress: Progress;
};
