import assert from 'node:assert/strict';
import { resultPages } from '../../src/exports/result-pages.ts';
import { FANOUT } from '../../src/fanout/fanout.ts';
import { getResult, getTask, listResults, listTasks } from '../../src/tasks/read-tasks.ts';
import { SCATTER } from '../../src/tasks/scatter.ts';
import type { ResultStatus } from '../../src/tasks/task.ts';
import { taskUsage } from '../../src/tasks/task-progress.ts';
import { type HotStatement, one, size } from './hot-statement.ts';

const PAGE = 50;
/** Results of a page of an export. */
const EXPORT_PAGE = 200;

/** What people ask. */
export const READS: HotStatement[] = [
  {
    name: 'progress, scatter',
    rows: size,
    run: async ({ large }, sql) => assert.ok(await SCATTER.progress(sql, large.scatter.taskId)),
  },
  {
    name: 'progress, fanout',
    rows: one,
    run: async ({ large }, sql) => assert.ok(await FANOUT.progress(sql, large.fanout.taskId)),
  },
  {
    name: 'what a task has used',
    rows: size,
    run: async ({ large }, sql) => assert.ok(Number((await taskUsage(sql, large.scatter.taskId)).pages) > 0),
  },
  {
    name: 'a task',
    rows: one,
    run: async ({ large }, sql) => assert.ok(await getTask(sql, large.scatter.taskId)),
  },
  {
    name: 'a result with its history',
    rows: one,
    async run({ large: { scatter } }, sql) {
      const [resultId = ''] = scatter.resultIds;
      assert.ok(await getResult(sql, { taskId: scatter.taskId, resultId }));
    },
  },
  listingTasks({}),
  listingTasks({ status: 'processing' }),
  listingTasks({ status: 'completed' }),
  listingTasks({ projectId: 'old-7' }),
  listingTasks({ projectId: 'old-7', status: 'completed' }),
  ...[undefined, 'completed', 'pending', 'error'].map((status) => listingResults(status)),
  ...[undefined, 'completed' as const, 'error' as const].map((status) => exporting(status)),
];

/** Two pages. */
function listingTasks(where: { projectId?: string; status?: string }): HotStatement {
  return {
    name: `tasks by ${JSON.stringify(where)}`,
    rows: () => PAGE,
    async run(_, sql) {
      const first = await listTasks(sql, { ...where, limit: PAGE });
      assert.ok(first.length > 0);
      await listTasks(sql, { ...where, after: first.at(-1)?.taskId, limit: PAGE });
    },
  };
}

/** Two pages. Of one status they may be anywhere in the task: then it is gone through as far as need be. */
function listingResults(status: string | undefined): HotStatement {
  return {
    name: `results that are ${status ?? 'of any status'}`,
    rows: status === undefined ? () => PAGE : size,
    async run({ large }, sql) {
      const where = { taskId: large.scatter.taskId, status, limit: PAGE };
      const first = await listResults(sql, where);
      assert.ok(first.length > 0);
      await listResults(sql, { ...where, after: first.at(-1)?.resultId });
    },
  };
}

/** Two pages. What is completed was the first of the task, what has failed may be anywhere. */
function exporting(status: ResultStatus | undefined): HotStatement {
  return {
    name: `an export of results that are ${status ?? 'of any status'}`,
    rows: status === 'error' ? size : () => EXPORT_PAGE,
    async run({ large }, sql) {
      const pages = resultPages(sql, { taskId: large.scatter.taskId, status }, (results) => results.length);
      assert.ok(Number((await pages.next()).value) > 0);
      await pages.next();
      await pages.return();
    },
  };
}
