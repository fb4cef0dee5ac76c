import { Hono } from 'hono';
import * as v from 'valibot';
import { type CreateTaskOutcome, createTask } from '../tasks/create-task.ts';
import { getTask, listTasks } from '../tasks/read-tasks.ts';
import { TASK_MODES } from '../tasks/task.ts';
import type { AppDependencies } from './app.ts';
import { readJson } from './body.ts';
import { readIdempotencyKey } from './idempotency-key.ts';
import { notFound, Problem } from './problem.ts';
import { line, optional, page, parse, parseId, parseQuery, projectId, strict, toPage, uuid } from './schemas.ts';
import { readProgress, readStatus, toTaskJson } from './task-json.ts';
import { deadlinePassed, limits, MAX_NAMED, refuseMany, refuseTwins, taskStatus, toLimits } from './task-schemas.ts';

const newTaskFields = strict({
  projectId,
  templateId: uuid,
  documentIds: optional(v.pipe(v.array(uuid, 'must be a list'), v.minLength(1, 'must name at least one document'))),
  idempotencyKey: optional(line(1, 255)),
  mode: optional(v.picklist(TASK_MODES, `must be one of ${TASK_MODES.join(', ')}`)),
  ...limits,
});

/** Only a manager can find out by itself what a project has. */
const newTask = v.pipe(
  newTaskFields,
  v.forward(
    v.partialCheck(
      [['documentIds'], ['mode']],
      ({ documentIds, mode }) => documentIds !== undefined || mode === 'fanout',
      'is required, but for mode fanout',
    ),
    ['documentIds'],
  ),
);

/** Tasks over HTTP: create, list, show. */
export function tasks({ sql, boss, config, onTaskCreated }: AppDependencies): Hono {
  const app = new Hono();

  app.post('/', async (c) => {
    parseQuery(c, {});
    const sent = await readJson(c);
    refuseMany('documentIds', 'documents', sent);
    const body = parse(newTask, sent);
    const idempotencyKey = readIdempotencyKey(c.req.header('idempotency-key'), body.idempotencyKey);
    const { projectId, templateId, mode = 'scatter', documentIds = null } = body;
    if (documentIds !== null) refuseTwins('documentIds', 'documents', documentIds);
    const request = { projectId, templateId, documentIds, idempotencyKey, mode, limits: toLimits(body) };
    const outcome = await createTask(sql, boss, request, config);
    if (outcome.outcome === 'created') {
      onTaskCreated?.(outcome.task);
      return c.json({ success: true, ...toTaskJson(outcome.task) }, 201, { Location: `/tasks/${outcome.task.taskId}` });
    }
    if (outcome.outcome === 'replayed') {
      return c.json({ success: true, ...toTaskJson(outcome.task), note: 'Idempotent return' }, 200);
    }
    throw refusal(outcome, { templateId, documentIds: documentIds ?? [] });
  });

  app.get('/', async (c) => {
    const query = parseQuery(c, { projectId: optional(projectId), status: taskStatus, ...page });
    const { limit, cursor, status } = query;
    const found = await listTasks(sql, { projectId: query.projectId, status, after: cursor, limit: limit + 1 });
    return c.json(toPage(found.map(toTaskJson), limit, (task) => task.taskId));
  });

  app.get('/:taskId', async (c) => {
    parseQuery(c, {});
    const taskId = parseId(c, 'taskId');
    const { status, progress } = await readProgress(sql, taskId);
    const task = await getTask(sql, taskId);
    if (task === undefined) throw notFound('task', taskId);
    // Closed between the two reads: the counts of before would contradict the status.
    const counts = task.status === status ? progress : (await readProgress(sql, taskId)).progress;
    return c.json({ ...toTaskJson(task), progress: counts });
  });

  app.get('/:taskId/status', async (c) => {
    parseQuery(c, {});
    return c.json(await readStatus(sql, parseId(c, 'taskId')));
  });

  return app;
}

type Refusal = Exclude<CreateTaskOutcome, { outcome: 'created' | 'replayed' }>;

function refusal(outcome: Refusal, request: { templateId: string; documentIds: readonly string[] }): Problem {
  switch (outcome.outcome) {
    case 'key_conflict':
      return new Problem(422, 'idempotency_key_conflict', 'this idempotency key belongs to another request', {
        errors: [{ path: 'idempotencyKey', message: 'belongs to another request' }],
      });
    case 'deadline_passed':
      return deadlinePassed();
    case 'unknown_template':
      return new Problem(422, 'unknown_template', 'there is no such template', {
        errors: [{ path: 'templateId', message: `no template has the id ${request.templateId}` }],
      });
    case 'unknown_documents':
      return new Problem(422, 'unknown_documents', `${outcome.count} of the documents are not in this project`, {
        errors: outcome.documentIds.slice(0, MAX_NAMED).map((id) => ({
          path: `documentIds[${request.documentIds.indexOf(id)}]`,
          message: `no document of this project has the id ${id}`,
        })),
      });
  }
}
