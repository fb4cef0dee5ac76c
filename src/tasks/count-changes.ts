import type { CountChange } from './task-mode.ts';

/**
 * The change of counts that some results make together, a line a task, in the order of their ids: whoever changes several
 * counters takes their locks in this order.
 */
export function countChanges(
  results: readonly { taskId: string }[],
  as: 'success' | 'failed' | 'cancelled',
  each: 1 | -1 = 1,
): CountChange[] {
  const byTask = new Map<string, CountChange>();
  for (const { taskId } of results) {
    const change = byTask.get(taskId) ?? { taskId, success: 0, failed: 0, cancelled: 0 };
    change[as] += each;
    byTask.set(taskId, change);
  }
  return inOrder(byTask);
}

/** Several changes as one for each task, in the same order. */
export function mergeChanges(changes: readonly CountChange[]): CountChange[] {
  const byTask = new Map<string, CountChange>();
  for (const { taskId, success, failed, cancelled } of changes) {
    const sum = byTask.get(taskId) ?? { taskId, success: 0, failed: 0, cancelled: 0 };
    sum.success += success;
    sum.failed += failed;
    sum.cancelled += cancelled;
    byTask.set(taskId, sum);
  }
  return inOrder(byTask);
}

function inOrder(byTask: Map<string, CountChange>): CountChange[] {
  return [...byTask.values()].sort((a, b) => (a.taskId < b.taskId ? -1 : 1));
}
