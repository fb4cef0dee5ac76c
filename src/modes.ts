import type { Sql } from './db.ts';
import { FANOUT } from './fanout/fanout.ts';
import { SCATTER } from './tasks/scatter.ts';
import type { TaskModeName } from './tasks/task.ts';
import type { TaskMode, TaskState } from './tasks/task-mode.ts';

/** The only place that knows both. */
export const MODES: Record<TaskModeName, TaskMode> = { scatter: SCATTER, fanout: FANOUT };

/** Where a task stands, whatever its mode: the exact counts from one snapshot; undefined when there is no such task. */
export async function readState(sql: Sql, taskId: string): Promise<TaskState | undefined> {
  return (await SCATTER.progress(sql, taskId)) ?? (await FANOUT.progress(sql, taskId));
}
