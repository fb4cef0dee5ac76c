import { FANOUT } from './fanout/fanout.ts';
import { SCATTER } from './tasks/scatter.ts';
import type { TaskModeName } from './tasks/task.ts';
import type { TaskMode } from './tasks/task-mode.ts';

/** The only place that knows both. */
export const MODES: Record<TaskModeName, TaskMode> = { scatter: SCATTER, fanout: FANOUT };
