/** The words of the API for tasks and results; the SQL files beside this one turn rows into them. */

export const TASK_STATUSES = ['processing', 'completed', 'cancelled', 'failed'] as const;
export type TaskStatus = (typeof TASK_STATUSES)[number];

/** How the results of a task come to be, and who counts them; see scatter.ts here and fanout.ts in src/fanout. */
export const TASK_MODES = ['scatter', 'fanout'] as const;
export type TaskModeName = (typeof TASK_MODES)[number];

/** The most documents of one task, and so the most results. */
export const MAX_DOCUMENTS = 100_000;

export const RESULT_STATUSES = ['pending', 'extracting', 'completed', 'error', 'cancelled'] as const;
export type ResultStatus = (typeof RESULT_STATUSES)[number];

/** What ends a task before its results do; null: no such limit. */
export type TaskLimits = {
  /** What is unfinished by then ends as an error. */
  deadlineAt: Date | null;
  /** When more results than this have failed, the rest is cancelled. */
  maxFailedCount: number | null;
  /** The same as a part of all results, 0 to 100. */
  maxFailedPercent: number | null;
};

export const NO_LIMITS: TaskLimits = { deadlineAt: null, maxFailedCount: null, maxFailedPercent: null };

/** Why a task ended otherwise than by its last result. */
export type StatusReason =
  | 'cancelled_by_user'
  | 'failure_threshold'
  | 'deadline_exceeded'
  /** Fan-out: its results could not be made, or not all of them. */
  | 'expansion_failed'
  | 'too_many_documents'
  /** Fan-out: nothing moved for hours, and nothing was left that could. */
  | 'no_progress';

export type Task = TaskLimits & {
  taskId: string;
  projectId: string;
  templateId: string;
  templateVersion: number;
  mode: TaskModeName;
  status: TaskStatus;
  statusReason: StatusReason | null;
  /** Null as long as it is not known: a whole project in fan-out mode, until its documents have been gone through. */
  totalCount: number | null;
  createdAt: Date;
  completedAt: Date | null;
};

export type Progress = {
  total: number;
  success: number;
  failed: number;
  /** 0 to 100, rounded down: 100 only when every result is terminal. */
  percent: number;
  pending: number;
  extracting: number;
  cancelled: number;
};

export type TaskResult = {
  resultId: string;
  documentId: string;
  filename: string;
  status: ResultStatus;
  attempts: number;
  data: unknown;
  error: { code: string; message: string } | null;
  usage: unknown;
  startedAt: Date | null;
  finishedAt: Date | null;
  updatedAt: Date;
};

export type Attempt = {
  attempt: number;
  outcome: string | null;
  worker: string;
  startedAt: Date;
  finishedAt: Date | null;
  error: { code: string; message: string } | null;
  usage: unknown;
};
