import { Hono } from 'hono';
import * as v from 'valibot';
import { cancelTask } from '../tasks/cancel-task.ts';
import { deleteTask } from '../tasks/delete-task.ts';
import { retryTask } from '../tasks/retry-task.ts';
import type { AppDependencies } from './app.ts';
import { readOptionalJson } from './body.ts';
import { notFound, Problem } from './problem.ts';
import { optional, parse, parseId, parseQuery, strict, uuid } from './schemas.ts';
import { readProgress } from './task-json.ts';
import { deadlinePassed, limits, MAX_NAMED, refuseMany, refuseTwins, toLimits } from './task-schemas.ts';

const cancel = strict({});

const retry = strict({
  resultIds: optional(v.pipe(v.array(uuid, 'must be a list'), v.minLength(1, 'must name at least one result'))),
  ...limits,
});

/** What a user may do to a task that exists: cancel it, retry what failed, delete it. */
export function taskActions({ sql, boss, config }: AppDependencies): Hono {
  const app = new Hono();

  app.post('/:taskId/cancel', async (c) => {
    parseQuery(c, {});
    const taskId = parseId(c, 'taskId');
    parse(cancel, await readOptionalJson(c));
    const outcome = await cancelTask(sql, boss, taskId);
    if (outcome.outcome === 'unknown') throw notFound('task', taskId);
    if (outcome.outcome === 'closed') {
      const { status } = outcome;
      throw new Problem(409, 'task_closed', `the task is ${status} already; only an open one can be cancelled`);
    }
    const { progress, ...task } = await readProgress(sql, taskId);
    return c.json({ ...task, cancelled: outcome.ended, progress });
  });

  app.post('/:taskId/retry', async (c) => {
    parseQuery(c, {});
    const taskId = parseId(c, 'taskId');
    const sent = await readOptionalJson(c);
    refuseMany('resultIds', 'results', sent);
    const { resultIds, ...body } = parse(retry, sent);
    if (resultIds !== undefined) refuseTwins('resultIds', 'results', resultIds);
    const limits = toLimits(body);
    if (limits.deadlineAt !== null && limits.deadlineAt.getTime() <= Date.now()) throw deadlinePassed();
    const outcome = await retryTask(sql, boss, { taskId, resultIds, limits }, config);
    if (outcome.outcome === 'unknown') throw notFound('task', taskId);
    if (outcome.outcome === 'unknown_results') throw unknownResults(outcome, resultIds ?? []);
    const { progress, ...task } = await readProgress(sql, taskId);
    return c.json({ ...task, retried: outcome.retried, progress });
  });

  app.delete('/:taskId', async (c) => {
    parseQuery(c, {});
    const taskId = parseId(c, 'taskId');
    const outcome = await deleteTask(sql, taskId);
    if (outcome === 'unknown') throw notFound('task', taskId);
    if (outcome === 'open') throw new Problem(409, 'task_open', 'the task is still open; cancel it first');
    return c.body(null, 204);
  });

  return app;
}

function unknownResults(unknown: { count: number; resultIds: string[] }, asked: readonly string[]): Problem {
  return new Problem(422, 'unknown_results', `${unknown.count} of the results are not of this task`, {
    errors: unknown.resultIds.slice(0, MAX_NAMED).map((id) => ({
      path: `resultIds[${asked.indexOf(id)}]`,
      message: `no result of this task has the id ${id}`,
    })),
  });
}
