import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HTTPException } from 'hono/http-exception';
import { connect } from '../../src/db.ts';
import { createLogger } from '../../src/log.ts';
import { json, openAppBench, problem, refusal, sendJson } from './bench.ts';

const { app, appWith, sql, url } = await openAppBench(import.meta.url);
const id = '01939f00-0000-7000-8000-00000000ffff';

const routes: [path: string, allow: string][] = [
  ['/healthz', 'GET, HEAD'],
  ['/readyz', 'GET, HEAD'],
  ['/documents', 'GET, HEAD, POST'],
  [`/documents/${id}`, 'GET, HEAD, DELETE'],
  [`/documents/${id}/content`, 'GET, HEAD'],
  ['/templates', 'GET, HEAD, POST'],
  [`/templates/${id}`, 'GET, HEAD'],
  ['/tasks', 'GET, HEAD, POST'],
  [`/tasks/${id}`, 'GET, HEAD, DELETE'],
  [`/tasks/${id}/status`, 'GET, HEAD'],
  [`/tasks/${id}/cancel`, 'POST'],
  [`/tasks/${id}/retry`, 'POST'],
  [`/tasks/${id}/results`, 'GET, HEAD'],
  [`/tasks/${id}/results/${id}`, 'GET, HEAD'],
];
for (const [path, allow] of routes) {
  test(`at ${path.replaceAll(id, ':id')} another method is told which ones there are`, async () => {
    for (const method of ['PUT', 'PATCH', 'OPTIONS', 'POST', 'DELETE', 'GET']) {
      if (allow.includes(method)) continue;
      const { status, code, headers } = await problem(app.request(path, { method }));
      assert.deepEqual([status, code, headers.get('allow')], [405, 'method_not_allowed', allow], method);
    }
  });
}

test('a path that is none is not found, by any method', async () => {
  for (const path of ['/', '/nope', '/documents/', `/tasks/${id}/nope`, `/documents/${id}/content/x`, '/Tasks']) {
    for (const method of ['GET', 'POST', 'DELETE']) {
      assert.deepEqual(await refusal(app.request(path, { method })), { status: 404, code: 'not_found', paths: [] });
    }
  }
});

test('a URL that is not percent-encoded UTF-8 is refused', async () => {
  for (const path of [
    '/documents/%zz',
    '/documents/%ff',
    '/documents?projectId=%',
    '/nope%e0%a4',
    '/tasks?status=%c0%80',
  ]) {
    assert.deepEqual(await refusal(app.request(path)), { status: 400, code: 'malformed_url', paths: [] });
  }
});

for (const path of ['/tasks', '/templates']) {
  test(`${path} takes JSON alone`, async () => {
    for (const type of [
      '',
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=B',
      'application/jsonx',
      'application/xml',
    ]) {
      const answer = app.request(path, {
        method: 'POST',
        body: Buffer.from('{}'),
        headers: type ? { 'Content-Type': type } : {},
      });
      assert.deepEqual(await refusal(answer), { status: 415, code: 'unsupported_media_type', paths: [] }, type);
    }
    assert.deepEqual(await refusal(app.request(path, { method: 'POST' })), {
      status: 415,
      code: 'unsupported_media_type',
      paths: [],
    });
    const gzip = await refusal(sendJson(app, path, '{}', { 'Content-Encoding': 'gzip' }));
    assert.deepEqual(gzip, { status: 415, code: 'unsupported_content_encoding', paths: [] });
    for (const type of ['application/json', 'Application/JSON; charset=utf-8', 'application/problem+json']) {
      const { status } = await problem(sendJson(app, path, '{}', { 'Content-Type': type }));
      assert.equal(status, 400, type);
    }
  });

  test(`${path} refuses what is not a JSON object`, async () => {
    const bad = { status: 400, code: 'malformed_json', paths: [''] };
    for (const body of ['', '{', '{"a":1,}', 'null x', "{'a':1}", 'NaN']) {
      assert.deepEqual(await refusal(sendJson(app, path, body)), bad, body);
    }
    const latin1 = app.request(path, {
      method: 'POST',
      body: Buffer.from('{"name":"\u00fc"}', 'latin1'),
      headers: { 'Content-Type': 'application/json' },
    });
    assert.deepEqual(await refusal(latin1), bad);
    for (const body of ['null', '[]', '"x"', '1', '['.repeat(10_000) + ']'.repeat(10_000)]) {
      const answer = await refusal(sendJson(app, path, body));
      assert.deepEqual(answer, { status: 400, code: 'invalid_request', paths: [''] }, body.slice(0, 20));
    }
  });

  test(`${path} refuses a body over 16 MB`, async () => {
    const large = { status: 413, code: 'body_too_large', paths: [] };
    assert.deepEqual(await refusal(sendJson(app, path, `"${'x'.repeat(16 * 1024 * 1024)}"`)), large);
    let sent = 0;
    const body = new ReadableStream({
      pull: (controller) => (++sent <= 20 ? controller.enqueue(Buffer.alloc(1024 * 1024, ' ')) : new Promise(() => {})),
    });
    const headers = { 'Content-Type': 'application/json' };
    const streamed = app.request(path, { method: 'POST', body, headers, duplex: 'half' } as RequestInit);
    assert.deepEqual(await refusal(streamed), large);
  });

  test(`${path} takes no query parameters with a body`, async () => {
    assert.deepEqual((await refusal(sendJson(app, `${path}?dryRun=1`, {}))).paths, ['dryRun']);
  });
}

test('while the database is away, the answer is 503 and says when to come again', async () => {
  const away = connect('postgres://nobody@127.0.0.1:1/none', { max: 1, applicationName: 'away' });
  const lost = appWith({ sql: away });
  for (const path of ['/documents', `/templates/${id}`, `/tasks/${id}/status`, '/tasks']) {
    const { status, code, headers } = await problem(lost.request(path));
    assert.deepEqual([status, code, headers.get('retry-after')], [503, 'database_unavailable', '5']);
  }
  const body = new FormData();
  body.append('projectId', 'away');
  body.append('files', new File(['x'], 'x.txt'));
  assert.equal((await problem(lost.request('/documents', { method: 'POST', body }))).status, 503);
  assert.deepEqual(await json(lost.request('/healthz')), { status: 'ok' });
  await away.end();
});

test('an error of our own is told without details, and logged', async () => {
  const lines: string[] = [];
  const log = createLogger({ level: 'info', write: (line) => lines.push(line) });
  const elsewhere = connect(url.replace(/[^/]+$/, 'postgres'), { max: 1, applicationName: 'without a schema' });
  const broken = appWith({ log, sql: elsewhere });
  const answer = await broken.request('/documents?projectId=private');
  const text = await answer.clone().text();
  assert.deepEqual(await refusal(answer), { status: 500, code: 'internal_error', paths: [] });
  assert.ok(!text.includes('asl_schema'));
  assert.ok(lines.some((line) => line.includes('asl_schema.document') && line.includes('"level":"error"')));
  assert.ok(!lines.some((line) => line.includes('private')));
  await elsewhere.end();
});

test('an exception of the framework is a problem too', async () => {
  const failing = appWith({});
  failing.get('/teapot', () => {
    throw new HTTPException(418);
  });
  assert.deepEqual(await refusal(failing.request('/teapot')), { status: 418, code: 'i_m_a_teapot', paths: [] });
});

test('each request is one line in the log: its route, never its values', async () => {
  const lines: string[] = [];
  const logged = appWith({ log: createLogger({ level: 'info', write: (line) => lines.push(line) }) });
  await logged.request(`/tasks/${id}/results/${id}?secret=1`);
  await logged.request('/documents?projectId=secret');
  await logged.request('/secret');
  await logged.request('/healthz');
  const told = lines.map((line) => {
    const { method, route, status, ms } = JSON.parse(line);
    assert.equal(typeof ms, 'number');
    return [method, route, status];
  });
  assert.deepEqual(told, [
    ['GET', '/tasks/:taskId/results/:resultId', 400],
    ['GET', '/documents', 200],
    ['GET', '*', 404],
  ]);
  assert.ok(!lines.join().includes('secret'));
});

test('text that PostgreSQL would refuse never reaches it', async () => {
  for (const text of ['a\0b', '\ud800', 'a\udc00']) {
    const fields = [{ key: 'a', label: text, type: 'text', description: text, pattern: text }];
    const { status } = await problem(
      sendJson(app, '/templates', JSON.stringify({ name: text, description: text, fields })),
    );
    assert.equal(status, 400);
    const task = { projectId: text, templateId: text, documentIds: [text], idempotencyKey: text, mode: text };
    assert.equal((await problem(sendJson(app, '/tasks', JSON.stringify(task)))).status, 400);
  }
  assert.equal((await sql`select 1 from asl_schema.template where name like 'a%'`).length, 0);
});
