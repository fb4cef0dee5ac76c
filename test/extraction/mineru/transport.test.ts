import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { startJobsServer } from '../../support/mineru-jobs.ts';
import { type Fault, PAGES } from '../../support/mineru-server.ts';
import { startFileParseServer, startTasksServer, type TasksServer } from '../../support/mineru-tasks.ts';
import { until } from '../../support/waiting.ts';
import { count, failure, identify, parse } from './support.ts';

describe('the connection to MinerU', () => {
  let server: TasksServer;
  before(async () => {
    server = await startTasksServer();
  });
  after(() => server.close());
  afterEach(() => {
    server.requests.length = 0;
  });

  const bad: [string, Fault, Parameters<typeof failure>[1]][] = [
    ['a long silence', 'silence', 'transient mineru_timeout'],
    ['an answer that trickles', 'trickle', 'transient mineru_timeout'],
    ['an answer that ends early', 'cut', 'transient mineru_unreachable'],
    ['a connection that is cut', 'drop', 'transient mineru_unreachable'],
    ['a page of HTML', { answer: 200, body: '<html></html>' }, 'transient mineru_bad_answer'],
  ];
  for (const [what, fault, expected] of bad) {
    test(`${what} to a submission is ${expected}`, async () => {
      server.plan('POST /tasks', fault);
      const started = Date.now();
      await failure(parse(server.parser({ requestTimeoutMs: 500 })), expected);
      assert.ok(Date.now() - started < 5000);
    });

    test(`${what} to a poll does not cost the task`, async () => {
      server.plan('GET /tasks/:id', fault);
      server.plan('GET /tasks/:id/result', fault);
      assert.deepEqual((await parse(server.parser({ requestTimeoutMs: 500 }))).pages, PAGES);
      assert.equal(count(server.routes(), 'POST /tasks'), 1);
    });
  }

  test('a server that keeps dropping polls is unreachable in the end', async () => {
    server.plan('GET /tasks/:id', 'drop', 'drop', 'drop', 'drop', 'drop');
    await failure(parse(server.parser()), 'transient mineru_unreachable');
    assert.equal(count(server.routes(), 'GET /tasks/:id'), 5);
  });

  test('a server that dies between submission and poll is unreachable, and is probed again when it is back', async () => {
    const parser = server.parser();
    server.plan('GET /tasks/:id', () => server.die());
    await failure(parse(parser), 'transient mineru_unreachable');
    server.forget();
    await server.revive();
    assert.deepEqual((await parse(parser)).pages, PAGES);
    assert.equal(count(server.routes(), 'GET /health'), 2);
  });

  test('a server that comes back with another version of MinerU is understood', async () => {
    const [old, current] = [await startFileParseServer(), await startJobsServer()];
    let base = old.url;
    const parser = old.parser({ fetch: (url, init) => fetch(String(url).replace(old.url, base), init) });
    assert.equal(await identify(parser), 'v2:default:default:r1');
    old.plan('POST /file_parse', 'drop');
    await failure(parse(parser), 'transient mineru_unreachable');
    base = current.url;
    assert.deepEqual((await parse(parser)).pages, PAGES);
    await Promise.all([old.close(), current.close()]);
  });

  test('the dialect is asked for once', async () => {
    const parser = server.parser();
    await parse(parser);
    await parse(parser);
    assert.equal(count(server.routes(), 'GET /health'), 1);
  });

  test('Retry-After in seconds and as a date is the wait', async () => {
    server.plan('POST /tasks', { answer: 503, headers: { 'retry-after': '7' } });
    assert.equal((await failure(parse(server.parser()), 'defer mineru_busy')).retryAfterMs, 7000);
    const date = new Date(Date.now() + 60_000).toUTCString();
    server.plan('POST /tasks', { answer: 429, headers: { 'retry-after': date } });
    const wait = (await failure(parse(server.parser()), 'defer mineru_busy')).retryAfterMs ?? 0;
    assert.ok(wait > 50_000 && wait <= 60_000, String(wait));
    server.plan('POST /tasks', { answer: 429, headers: { 'retry-after': 'soon' } });
    assert.equal((await failure(parse(server.parser()), 'defer mineru_busy')).retryAfterMs, 30_000);
    server.plan('POST /tasks', { answer: 429, headers: { 'retry-after': '99999999999' } });
    assert.equal((await failure(parse(server.parser()), 'defer mineru_busy')).retryAfterMs, 86_400_000);
  });

  test('a short Retry-After of a poll is waited for, a long one defers the paper', async () => {
    server.plan('GET /tasks/:id', { answer: 429, headers: { 'retry-after': '0' } });
    assert.deepEqual((await parse(server.parser())).pages, PAGES);
    server.plan('GET /tasks/:id', { answer: 503, headers: { 'retry-after': '600' } });
    assert.equal((await failure(parse(server.parser()), 'defer mineru_busy')).retryAfterMs, 600_000);
  });

  test('a task that never ends is given up when the time for the paper is over', async () => {
    server.outcome.status = 'processing';
    await failure(parse(server.parser({ parseTimeoutMs: 60 })), 'transient mineru_timeout');
    server.outcome.status = 'completed';
  });

  test('an answer over the limit is refused', async () => {
    const results = server.outcome.results;
    server.outcome.results = { document: { md_content: 'long '.repeat(1000) } };
    await failure(parse(server.parser({ maxBodyBytes: 4000 })), 'permanent mineru_result_too_large');
    server.outcome.results = results;
    const endless = { answer: 200, headers: { 'content-length': String(300 * 1024 * 1024) } };
    server.plan('GET /tasks/:id/result', endless);
    await failure(parse(server.parser()), 'permanent mineru_result_too_large');
  });

  test('a GET follows redirects within the origin, with the key', async () => {
    server.plan('GET /tasks/:id/result', { answer: 307, headers: { location: '/moved/1' } });
    server.plan('GET /moved/1', { answer: 200, body: { results: { d: { md_content: 'Moved.' } } } });
    assert.deepEqual((await parse(server.parser({ apiKey: 'k3y' }))).pages, ['Moved.']);
    assert.equal(server.requests.at(-1)?.headers.authorization, 'Bearer k3y');
  });

  test('no redirect leads to another origin, and none from a POST', async () => {
    const other = await startTasksServer();
    for (const route of ['GET /health', 'POST /tasks', 'GET /tasks/:id']) {
      server.plan(route, { answer: 302, headers: { location: `${other.url}/tasks/1` } });
      await failure(parse(server.parser({ apiKey: 'k3y', dialect: 'v3' })), 'configuration mineru_redirect');
    }
    server.plan('POST /tasks', { answer: 308, headers: { location: '/tasks/' } });
    await failure(parse(server.parser()), 'configuration mineru_redirect');
    server.plan('GET /tasks/:id', ...Array.from({ length: 9 }, () => ({ answer: 302, headers: { location: '' } })));
    await failure(parse(server.parser()), 'configuration mineru_redirect');
    assert.deepEqual(other.requests, []);
    await other.close();
    server.plan('GET /tasks/:id');
  });

  test('what a server says of keys and URLs is not repeated, and not at any length', async () => {
    const said = `cloud-key-1 at https://b.example/x?Signature=y Bearer cloud-key-2 ${'long '.repeat(2000)}`;
    server.plan('POST /tasks', { answer: 500, body: { detail: said } });
    const error = await failure(parse(server.parser({ apiKey: 'cloud-key-1' })), 'transient mineru_server_error');
    assert.match(error.message, /: \[key\] at \[url\] \[key\] long/);
  });

  for (const [what, route, fault] of [
    ['a submission', 'POST /tasks', 'silence'],
    ['an answer', 'GET /tasks/:id', 'trickle'],
  ] as const) {
    test(`the signal ends ${what} at once, with nothing left`, async () => {
      const stop = new AbortController();
      const parser = server.parser();
      await identify(parser);
      server.plan(route, fault);
      const arrived = server.next(route);
      const parsing = parse(parser, stop.signal);
      const request = await arrived;
      stop.abort(new Error('the claim was lost'));
      await assert.rejects(parsing, /the claim was lost/);
      await request.closed;
    });
  }

  test('the signal ends a wait between polls at once, and every timer is taken back', async (t) => {
    const started = t.mock.method(globalThis, 'setTimeout');
    const ended = t.mock.method(globalThis, 'clearTimeout');
    const stop = new AbortController();
    const parser = server.parser({ pollIntervalMs: 3_600_001, requestTimeoutMs: 3_600_002, parseTimeoutMs: 3_600_003 });
    const parsing = parse(parser, stop.signal);
    const ours = () => started.mock.calls.filter(({ arguments: [, ms] }) => (ms ?? 0) >= 3_600_000);
    await until('the wait for the first poll', () => ours().some(({ arguments: [, ms] }) => ms === 3_600_001));
    stop.abort(new Error('the process stops'));
    await assert.rejects(parsing, /the process stops/);
    const cleared = new Set(ended.mock.calls.map(({ arguments: [timer] }) => timer));
    assert.ok(ours().length >= 5);
    assert.ok(ours().every(({ result }) => cleared.has(result)));
    await assert.rejects(parse(parser, AbortSignal.abort(new Error('too late'))), /too late/);
  });

  const systemErrors: [string, Parameters<typeof failure>[1]][] = [
    ['ENOTFOUND', 'transient mineru_unreachable'],
    ['UND_ERR_HEADERS_TIMEOUT', 'transient mineru_timeout'],
    ['DEPTH_ZERO_SELF_SIGNED_CERT', 'configuration mineru_tls'],
    ['CERT_HAS_EXPIRED', 'configuration mineru_tls'],
  ];
  for (const [code, expected] of systemErrors) {
    test(`${code} is ${expected}`, async () => {
      const cause = Object.assign(new Error('https://mineru.internal/?Signature=s'), { code });
      const failing = () => Promise.reject(new TypeError('fetch failed', { cause }));
      assert.match((await failure(parse(server.parser({ fetch: failing })), expected)).message, new RegExp(code));
    });
  }

  test('a paper that is to go over TLS is not put to a URL without', async () => {
    const asked: string[] = [];
    const answering = async (url: unknown) => {
      asked.push(String(url));
      return Response.json({ code: 0, data: { batch_id: 'b', file_urls: [`${server.url}/up?Signature=s`] } });
    };
    const parser = server.parser({ baseUrl: 'https://mineru.internal', dialect: 'cloud', fetch: answering });
    await failure(parse(parser), 'transient mineru_bad_answer');
    assert.deepEqual(asked, ['https://mineru.internal/api/v4/file-urls/batch']);
  });

  test('an unreachable server is transient', async () => {
    const gone = await startTasksServer();
    await gone.close();
    await failure(parse(gone.parser()), 'transient mineru_unreachable');
    await failure(gone.parser().identify(new AbortController().signal), 'transient mineru_unreachable');
  });

  test('an empty document is not sent', async () => {
    const { signal } = new AbortController();
    const parsing = server.parser().parse({ content: new Uint8Array(), filename: 'a.pdf', signal });
    await failure(parsing, 'permanent document_empty');
    assert.deepEqual(server.requests, []);
  });
});
