import { type Context, Hono } from 'hono';
import type { PgBoss } from 'pg-boss';
import type { Config } from '../config.ts';
import type { Sql } from '../db.ts';
import type { Hub } from '../events/hub.ts';
import { describeError, type Logger } from '../log.ts';
import type { Task } from '../tasks/task.ts';
import { documents } from './documents.ts';
import { events } from './events.ts';
import { health } from './health.ts';
import { Problem, toProblem } from './problem.ts';
import { results } from './results.ts';
import { stages } from './stages.ts';
import { taskActions } from './task-actions.ts';
import { tasks } from './tasks.ts';
import { templates } from './templates.ts';

export type AppDependencies = {
  sql: Sql;
  boss: PgBoss;
  config: Pick<
    Config,
    'maxDocumentBytes' | 'maxUploadBytes' | 'maxUploadFiles' | 'jobExpirySeconds' | 'heartbeatSeconds' | 'maxAttempts'
  >;
  log: Logger;
  /** Feeds the live streams; without one there are none. */
  hub?: Hub;
  /** Says false while the process starts or drains, and so must get no traffic. */
  isReady?: () => boolean;
  /** Called after a task's commit; a courtesy to workers of the same process. */
  onTaskCreated?: (task: Task) => void;
};

/** The whole HTTP surface. Every answer other than success is `application/problem+json`. */
export function createApp(deps: AppDependencies): Hono {
  const app = new Hono();

  app.use(async (c, next) => {
    const startedAt = performance.now();
    await next();
    // The pattern of the route, never the URL: a query may hold what people would not want to see in a log.
    const route = routeOf(app, c);
    // Probes ask every few seconds.
    const level = c.res.status >= 500 ? 'warn' : PROBES.includes(route) ? 'debug' : 'info';
    const ms = Math.round(performance.now() - startedAt);
    deps.log[level]('request', { method: c.req.method, route, status: c.res.status, ms });
  });

  app.use(async (c, next) => {
    refuseMalformedUrl(c.req.url);
    await next();
  });

  app.route('/', health(deps));
  app.route('/documents', documents(deps));
  app.route('/templates', templates(deps));
  app.route('/stages', stages(deps));
  app.route('/tasks', tasks(deps));
  app.route('/tasks', taskActions(deps));
  app.route('/tasks', results(deps));
  if (deps.hub) app.route('/tasks', events(deps.hub));

  app.notFound((c) => {
    const allow = allowedMethods(app, c.req.path);
    if (allow.length === 0) return new Problem(404, 'not_found', 'there is nothing at this path').toResponse();
    const headers = { Allow: allow.join(', ') };
    return new Problem(405, 'method_not_allowed', `use ${allow.join(' or ')} here`, { headers }).toResponse();
  });

  app.onError((error, c) => {
    const problem = toProblem(error);
    // A value that got past every check is answered as the client's fault, but is a gap of ours.
    if ((problem.status >= 500 && problem.code !== 'not_ready') || problem.code === 'refused_value') {
      deps.log.error('request failed', {
        method: c.req.method,
        route: routeOf(app, c),
        code: problem.code,
        error: describeError(error),
      });
    }
    return problem.toResponse();
  });

  return app;
}

const PROBES = ['/healthz', '/readyz'];
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];

/** Which methods have a handler at a path. The router knows; middleware, which stands at every path, does not count. */
function allowedMethods(app: Hono, path: string): string[] {
  return METHODS.filter((method) => handlerRoute(app, method, path) !== undefined).flatMap((method) =>
    method === 'GET' ? ['GET', 'HEAD'] : [method],
  );
}

function routeOf(app: Hono, c: Context): string {
  const method = c.req.method === 'HEAD' ? 'GET' : c.req.method;
  return handlerRoute(app, method, c.req.path) ?? '*';
}

function handlerRoute(app: Hono, method: string, path: string): string | undefined {
  const [matches] = app.router.match(method, path);
  return matches.map(([[, route]]) => route).find((route) => route.method !== 'ALL')?.path;
}

/** Percent signs that are no bytes, and bytes that are no UTF-8, would otherwise pass as if they were meant. */
function refuseMalformedUrl(url: string): void {
  try {
    decodeURIComponent(url);
  } catch (cause) {
    throw new Problem(400, 'malformed_url', 'the URL is not percent-encoded UTF-8', { cause });
  }
}
