import { type Context, Hono } from 'hono';
import * as v from 'valibot';
import { type CreateTaskOutcome, createTask } from '../tasks/create-task.ts';
import { getResult, getTask, listResults, listTasks } from '../tasks/read-tasks.ts';
import { RESULT_STATUSES, TASK_STATUSES, type Task } from '../tasks/task.ts';
import { taskProgress } from '../tasks/task-progress.ts';
import type { AppDependencies } from './app.ts';
import { readJson } from './body.ts';
import { readIdempotencyKey } from './idempotency-key.ts';
import { notFound, Problem } from './problem.ts';
import { line, optional, page, parse, parseId, parseQuery, projectId, strict, toPage, uuid } from './schemas.ts';

const MAX_DOCUMENTS = 100_000;
/** How many of many bad documents are named. */
const MAX_NAMED = 20;

const newTask = strict({
  projectId,
  templateId: uuid,
  documentIds: v.pipe(v.array(uuid, 'must be a list'), v.minLength(1, 'must name at least one document')),
  idempotencyKey: optional(line(1, 255)),
  mode: optional(v.picklist(['scatter'], 'must be scatter')),
});

const taskStatus = optional(v.picklist(TASK_STATUSES, `must be one of ${TASK_STATUSES.join(', ')}`));
const resultStatus = optional(v.picklist(RESULT_STATUSES, `must be one of ${RESULT_STATUSES.join(', ')}`));

/** Tasks and their results over HTTP. */
export function tasks({ sql, boss, config, onTaskCreated }: AppDependencies): Hono {
  const app = new Hono();

  app.post('/', async (c) => {
    parseQuery(c, {});
    const body = parse(newTask, await readJson(c));
    const idempotencyKey = readIdempotencyKey(c.req.header('idempotency-key'), body.idempotencyKey);
    const { templateId, documentIds } = body;
    refuseTooMany(documentIds);
    refuseTwins(documentIds);
    const request = { projectId: body.projectId, templateId, documentIds, idempotencyKey };
    const outcome = await createTask(sql, boss, request, config);
    if (outcome.outcome === 'created') {
      onTaskCreated?.(outcome.task);
      return c.json({ success: true, ...outcome.task }, 201, { Location: `/tasks/${outcome.task.taskId}` });
    }
    if (outcome.outcome === 'replayed') {
      return c.json({ success: true, ...outcome.task, note: 'Idempotent return' }, 200);
    }
    throw refusal(outcome, { templateId, documentIds });
  });

  app.get('/', async (c) => {
    const query = parseQuery(c, { projectId: optional(projectId), status: taskStatus, ...page });
    const { limit, cursor } = query;
    const { status } = query;
    const found = await listTasks(sql, { projectId: query.projectId, status, after: cursor, limit: limit + 1 });
    return c.json(toPage(found, limit, (task) => task.taskId));
  });

  app.get('/:taskId', async (c) => {
    parseQuery(c, {});
    const { taskId, status, progress } = await progressOf(c);
    const task = await requireTask(taskId);
    // Closed between the two reads: the counts of before would contradict the status.
    const counts = task.status === status ? progress : (await progressOf(c)).progress;
    return c.json({ ...task, progress: counts });
  });

  app.get('/:taskId/status', async (c) => {
    parseQuery(c, {});
    return c.json(await progressOf(c));
  });

  app.get('/:taskId/results', async (c) => {
    const { limit, cursor, status } = parseQuery(c, { status: resultStatus, ...page });
    const { taskId } = await requireTask(parseId(c, 'taskId'));
    const found = await listResults(sql, { taskId, status, after: cursor, limit: limit + 1 });
    return c.json(toPage(found, limit, (result) => result.resultId));
  });

  app.get('/:taskId/results/:resultId', async (c) => {
    parseQuery(c, {});
    const taskId = parseId(c, 'taskId');
    const resultId = parseId(c, 'resultId');
    const result = await getResult(sql, { taskId, resultId });
    if (result === undefined) throw notFound('result', resultId);
    return c.json(result);
  });

  async function requireTask(taskId: string): Promise<Task> {
    const task = await getTask(sql, taskId);
    if (task === undefined) throw notFound('task', taskId);
    return task;
  }

  async function progressOf(c: Context) {
    const taskId = parseId(c, 'taskId');
    const found = await taskProgress(sql, taskId);
    if (found === undefined) throw notFound('task', taskId);
    return { taskId, ...found };
  }

  return app;
}

function refuseTooMany(documentIds: readonly string[]): void {
  if (documentIds.length <= MAX_DOCUMENTS) return;
  const message = `must name at most ${MAX_DOCUMENTS} documents`;
  throw new Problem(422, 'too_many_documents', `a task may have at most ${MAX_DOCUMENTS} documents`, {
    errors: [{ path: 'documentIds', message }],
  });
}

/** The ids are in lower case by now, so that one document in two spellings is seen. */
function refuseTwins(documentIds: readonly string[]): void {
  const first = new Map<string, number>();
  const twins = documentIds.flatMap((id, index) => {
    const earlier = first.get(id);
    if (earlier !== undefined) return [{ index, id, earlier }];
    first.set(id, index);
    return [];
  });
  if (twins.length === 0) return;
  throw new Problem(422, 'duplicate_documents', `${twins.length} of the documents are named before already`, {
    errors: twins.slice(0, MAX_NAMED).map(({ index, id, earlier }) => ({
      path: `documentIds[${index}]`,
      message: `${id} is documentIds[${earlier}] too`,
    })),
  });
}

type Refusal = Exclude<CreateTaskOutcome, { outcome: 'created' | 'replayed' }>;

function refusal(outcome: Refusal, request: { templateId: string; documentIds: readonly string[] }): Problem {
  switch (outcome.outcome) {
    case 'key_conflict':
      return new Problem(422, 'idempotency_key_conflict', 'this idempotency key belongs to another request', {
        errors: [{ path: 'idempotencyKey', message: 'belongs to another request' }],
      });
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
