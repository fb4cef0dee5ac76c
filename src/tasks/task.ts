/** The words of the API for tasks and results; the SQL files beside this one turn rows into them. */

export const TASK_STATUSES = ['processing', 'completed', 'cancelled', 'failed'] as const;
export type TaskStatus = (typeof TASK_STATUSES)[number];

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
export type StatusReason = 'cancelled_by_user' | 'failure_threshold' | 'deadline_exceeded';

export type Task = TaskLimits & {
  taskId: string;
  projectId: string;
  templateId: string;
  templateVersion: number;
  mode: 'scatter' | 'fanout';
  status: TaskStatus;
  statusReason: StatusReason | null;
  totalCount: number;
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
