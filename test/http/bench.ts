import assert from 'node:assert/strict';
import type { Hono } from 'hono';
import { loadConfig } from '../../src/config.ts';
import { type AppDependencies, createApp } from '../../src/http/app.ts';
import { openTestBench, silent, type TestBench } from '../support/fixtures.ts';

export type AppBench = TestBench & {
  app: Hono;
  /** The app with other limits, another database, …: what is not given stays. */
  appWith: (change: Partial<AppDependencies>) => Hono;
  config: AppDependencies['config'];
};

/** The HTTP surface on a database of the file's own. */
export async function openAppBench(file: string): Promise<AppBench> {
  const bench = await openTestBench(file);
  const config = loadConfig({ DATABASE_URL: bench.url });
  const deps: AppDependencies = { sql: bench.sql, boss: bench.boss, config, log: silent };
  return { ...bench, app: createApp(deps), appWith: (change) => createApp({ ...deps, ...change }), config };
}

// biome-ignore lint/suspicious/noExplicitAny: what came over the wire; the test that reads it says what it must be.
export type Json = any;

/** A request with a JSON body. */
export function sendJson(app: Hono, path: string, body: unknown, headers: Record<string, string> = {}) {
  return app.request(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

/** The JSON of an answer that must have this status. */
export async function json(answer: Response | Promise<Response>, status = 200): Promise<Json> {
  const response = await answer;
  const body = await response.text();
  assert.equal(response.status, status, body);
  assert.equal(response.headers.get('content-type'), 'application/json');
  return JSON.parse(body);
}

/** What a refusal says, after a check that it is a problem in the form of RFC 9457. */
export async function problem(answer: Response | Promise<Response>) {
  const response = await answer;
  const body = await response.text();
  assert.equal(response.headers.get('content-type'), 'application/problem+json', body);
  const said = JSON.parse(body);
  assert.equal(said.status, response.status);
  assert.equal(typeof said.type, 'string');
  assert.equal(typeof said.title, 'string');
  const paths = ((said.errors ?? []) as { path: string; message: string }[]).map(({ path }) => path);
  return {
    status: said.status as number,
    code: said.code as string,
    paths,
    errors: said.errors,
    headers: response.headers,
  };
}

/** Status, code and the paths of all faults. */
export async function refusal(answer: Response | Promise<Response>) {
  const { status, code, paths } = await problem(answer);
  return { status, code, paths };
}

/** A form with a project and files, as a browser sends it. */
export function form(projectId: string, files: Record<string, string | Uint8Array<ArrayBuffer>>): FormData {
  const data = new FormData();
  data.append('projectId', projectId);
  for (const [name, content] of Object.entries(files)) data.append('files', new File([content], name));
  return data;
}
