import type { ResultStatus } from '../tasks/task.ts';

/** Something about this task as a whole has changed (closed, cancelled, retried, reopened, grown): look at it. */
export type TaskChanged = { type: 'task'; taskId: string };

/** A result has come to this status, in this attempt. `code` says why, where it is an error or waits for another attempt. */
export type ResultEvent = {
  type: 'result';
  taskId: string;
  resultId: string;
  status: ResultStatus;
  attempt: number;
  code?: string | undefined;
};

export type EventLevel = 'info' | 'warn' | 'error';

/** A line for people who watch a task; `at` is when, in milliseconds since 1970: now, if it is not said. */
export type LogEvent = {
  type: 'log';
  taskId: string;
  level: EventLevel;
  message: string;
  resultId?: string | undefined;
  attempt?: number | undefined;
  at?: number | undefined;
};

/**
 * What one process tells the others of a task, so that clients of theirs see it live. Only a courtesy: what counts stands in
 * the tables, and an event that is lost loses nothing that polling would not show.
 */
export type TaskEvent = TaskChanged | ResultEvent | LogEvent;

/** The NOTIFY channel that carries them. */
export const EVENT_CHANNEL = 'asl_events';
