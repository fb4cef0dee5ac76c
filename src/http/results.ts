import { type Context, Hono } from 'hono';
import * as v from 'valibot';
import { csvHeader, toCsv } from '../exports/csv.ts';
import { toNdjson } from '../exports/ndjson.ts';
import { type ResultSelection, resultPages } from '../exports/result-pages.ts';
import { describeError } from '../log.ts';
import { getResult, getTask, listResults } from '../tasks/read-tasks.ts';
import type { Task } from '../tasks/task.ts';
import { getTemplate } from '../templates/template-store.ts';
import type { AppDependencies } from './app.ts';
import { negotiate } from './negotiate.ts';
import { invalidRequest, notFound, Problem } from './problem.ts';
import { optional, page, parseId, parseQuery, toPage } from './schemas.ts';
import { streamBody } from './stream-body.ts';
import { resultStatus } from './task-schemas.ts';

const MEDIA_TYPES = { json: 'application/json', ndjson: 'application/x-ndjson', csv: 'text/csv' } as const;
const FORMATS = ['json', 'ndjson', 'csv'] as const;
type Format = (typeof FORMATS)[number];

/** The results of a task over HTTP: page by page as JSON, or all of them as a file. */
export function results({ sql, log }: AppDependencies): Hono {
  const app = new Hono();

  app.get('/:taskId/results', async (c) => {
    const format = optional(v.picklist(FORMATS, `must be one of ${FORMATS.join(', ')}`));
    const query = parseQuery(c, { status: resultStatus, format, ...page });
    const chosen = query.format ?? formatByAccept(c);
    if (chosen !== 'json') refusePaging(c);
    const task = await requireTask(parseId(c, 'taskId'));
    c.header('Vary', 'Accept');
    if (chosen !== 'json') return await sendExport(c, chosen, task, query.status);
    const { limit, cursor, status } = query;
    const found = await listResults(sql, { taskId: task.taskId, status, after: cursor, limit: limit + 1 });
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

  async function sendExport(
    c: Context,
    format: Exclude<Format, 'json'>,
    { taskId, templateId }: Task,
    status: ResultSelection['status'],
  ) {
    const pieces = format === 'csv' ? writeCsv : writeNdjson;
    const body = streamBody(c, pieces({ taskId, status }, templateId), (error) => {
      log.error('export broken off', { taskId, format, error: describeError(error) });
    });
    return c.body(body, 200, {
      'Content-Type': format === 'csv' ? `${MEDIA_TYPES.csv}; charset=utf-8; header=present` : MEDIA_TYPES.ndjson,
      'Content-Disposition': `attachment; filename="results-${taskId}${status ? `-${status}` : ''}.${format}"`,
      'X-Content-Type-Options': 'nosniff',
      // Large, and as of one moment only.
      'Cache-Control': 'no-store',
    });
  }

  async function* writeNdjson(selection: ResultSelection): AsyncGenerator<Uint8Array, void, undefined> {
    yield* resultPages(sql, selection, (found) => Buffer.from(toNdjson(found)));
  }

  async function* writeCsv(
    selection: ResultSelection,
    templateId: string,
  ): AsyncGenerator<Uint8Array, void, undefined> {
    const template = await getTemplate(sql, templateId);
    if (template === undefined) throw new Error('the template of the task is gone');
    yield Buffer.from(csvHeader(template.fields));
    yield* resultPages(sql, selection, (found) => Buffer.from(toCsv(found, template.fields)));
  }

  async function requireTask(taskId: string): Promise<Task> {
    const task = await getTask(sql, taskId);
    if (task === undefined) throw notFound('task', taskId);
    return task;
  }

  return app;
}

/** @throws Problem 406 when the client takes none of the formats */
function formatByAccept(c: Context): Format {
  const type = negotiate(c, [MEDIA_TYPES.json, MEDIA_TYPES.ndjson, MEDIA_TYPES.csv]);
  const format = FORMATS.find((each) => MEDIA_TYPES[each] === type);
  if (format !== undefined) return format;
  const offered = FORMATS.map((each) => MEDIA_TYPES[each]).join(', ');
  throw new Problem(406, 'not_acceptable', `results come as ${offered}`, { headers: { Vary: 'Accept' } });
}

/** @throws Problem 400 */
function refusePaging(c: Context): void {
  const paging = ['limit', 'cursor'].filter((name) => c.req.query(name) !== undefined);
  if (paging.length === 0) return;
  throw invalidRequest(paging.map((path) => ({ path, message: 'is for JSON only: a file has all results' })));
}
