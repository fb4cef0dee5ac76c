import type { Sql } from '../db.ts';
import type { ReadWatchedTask } from '../events/watched-task.ts';
import { getTask, listResults } from '../tasks/read-tasks.ts';
import { Problem } from './problem.ts';
import { readProgress, readStatus } from './task-json.ts';

/** So many of the results being extracted are named in a snapshot. */
const MAX_EXTRACTING = 200;
/** A task that was closed or opened between two statements is read again. */
const MAX_TRIES = 5;

/** Reads a task for its live streams, in the words of the API: its counts, and more only for a snapshot and at the end. */
export function watchedTaskReader(sql: Sql): ReadWatchedTask {
  const readOnce: ReadWatchedTask = async (taskId, wanted) => {
    const { progress, details } = wanted.details ? await readDetailed(taskId) : await readPlain(taskId);
    const closedAtMs = progress.status === 'processing' ? undefined : await readClosedAtMs(taskId);
    return { progress, closedAtMs, details };
  };

  const readPlain = async (taskId: string) => ({ progress: await readProgress(sql, taskId), details: undefined });

  const readDetailed = async (taskId: string) => {
    const { usage, paused, ...progress } = await readStatus(sql, taskId);
    const extracting = progress.status === 'processing' ? await readExtracting(taskId) : [];
    return { progress, details: { usage, paused, extracting } };
  };

  const readClosedAtMs = async (taskId: string): Promise<number> => {
    const task = await getTask(sql, taskId);
    if (task?.completedAt) return task.completedAt.getTime();
    throw new ChangedMeanwhile();
  };

  const readExtracting = async (taskId: string) => {
    const results = await listResults(sql, { taskId, status: 'extracting', limit: MAX_EXTRACTING });
    return results.map(({ resultId, filename, attempts, startedAt }) => {
      return { resultId, filename, attempt: attempts, startedAt };
    });
  };

  return async (taskId, wanted) => {
    for (let tries = 1; ; tries++) {
      try {
        return await readOnce(taskId, wanted);
      } catch (error) {
        if (error instanceof Problem && error.status === 404) return undefined;
        if (!(error instanceof ChangedMeanwhile) || tries === MAX_TRIES) throw error;
      }
    }
  };
}

class ChangedMeanwhile extends Error {
  override readonly name = 'ChangedMeanwhile';
}
