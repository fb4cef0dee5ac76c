import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import { createModelClient } from '../../../src/extraction/model/model-client.ts';
import { PromptTooLong } from '../../../src/extraction/model/model-error.ts';
import { retryAfterMs } from '../../../src/extraction/model/retry-after.ts';
import type { Fault } from '../../support/model-server.ts';
import { failureOf, KEY, question, setUp } from './support.ts';

const said = (message: string, more: object = {}) => ({
  error: { message, type: 'x', param: null, code: null, ...more },
});

describe('what a server answers decides what becomes of the paper', () => {
  const rows: [string, Fault, string, string, number?][] = [
    ['408', { status: 408 }, 'transient', 'model_unavailable'],
    ['409', { status: 409 }, 'transient', 'model_unavailable'],
    ['425', { status: 425 }, 'transient', 'model_unavailable'],
    ['429 rate limit', { status: 429, body: said('Rate limit reached') }, 'transient', 'model_rate_limited'],
    ['429 with seconds', { status: 429, headers: { 'retry-after': '7' } }, 'defer', 'model_rate_limited', 7000],
    [
      '429 with milliseconds',
      { status: 429, headers: { 'retry-after-ms': '250' } },
      'defer',
      'model_rate_limited',
      250,
    ],
    ['429 at once', { status: 429, headers: { 'retry-after': '0' } }, 'transient', 'model_rate_limited'],
    ['500', { status: 500, body: 'oops' }, 'transient', 'model_unavailable'],
    ['503 with seconds', { status: 503, headers: { 'retry-after': '2' } }, 'defer', 'model_unavailable', 2000],
    ['529', { status: 529 }, 'transient', 'model_unavailable'],
    ['a page of a proxy', { status: 502, body: '<html>Bad gateway</html>' }, 'transient', 'model_unavailable'],
    [
      '429 insufficient_quota',
      {
        status: 429,
        headers: { 'retry-after': '5' },
        body: said('You exceeded your current quota', { code: 'insufficient_quota' }),
      },
      'configuration',
      'model_quota_exhausted',
    ],
    ['401', { status: 401, body: said(`Incorrect API key provided: ${KEY}`) }, 'configuration', 'model_unauthorized'],
    ['402', { status: 402, body: said('Insufficient Balance') }, 'configuration', 'model_quota_exhausted'],
    ['403', { status: 403 }, 'configuration', 'model_forbidden'],
    ['400', { status: 400, body: said('Bad tool') }, 'permanent', 'model_rejected'],
    ['404', { status: 404, body: said('The model does not exist') }, 'configuration', 'model_not_found'],
    ['413', { status: 413 }, 'permanent', 'model_rejected'],
    [
      'content filter on the prompt',
      { status: 400, body: said('Filtered', { code: 'content_filter' }) },
      'permanent',
      'model_rejected',
    ],
    [
      'an error in a 200',
      { raw: '{"error": {"message": "Provider returned error", "code": 429}}' },
      'transient',
      'model_rate_limited',
    ],
    ['an error without a code in a 200', { raw: '{"error": "no slot"}' }, 'transient', 'model_unavailable'],
    ['half a body', { raw: '{"choices": [{"mess' }, 'transient', 'model_response_unreadable'],
    ['a page in a 200', { raw: '<html>Log in</html>' }, 'transient', 'model_response_unreadable'],
    ['a body that ends early', { ends: 'in the body' }, 'transient', 'model_connection_lost'],
    ['a connection that ends', { ends: 'at once' }, 'transient', 'model_unreachable'],
    ['silence', { silence: true }, 'transient', 'model_timeout'],
    ['a trickle', { trickleEveryMs: 20 }, 'transient', 'model_timeout'],
    [
      'content_filter',
      { message: { content: '' }, finishReason: 'content_filter' },
      'permanent',
      'model_content_filtered',
    ],
    ['refusal', { message: { content: null, refusal: 'I will not.' } }, 'permanent', 'model_refused'],
  ];
  for (const [name, fault, errorClass, code, waitMs] of rows) {
    test(`${name}: ${errorClass}, ${code}`, async (t) => {
      const { server, client } = await setUp(
        t,
        {},
        { requestTimeoutMs: 'silence' in fault || 'trickleEveryMs' in fault ? 300 : 20_000 },
      );
      server.faults.push(fault);
      const error = await failureOf(client.ask(question()));
      assert.deepEqual([error.errorClass, error.code, error.retryAfterMs], [errorClass, code, waitMs]);
      assert.equal(error.usage.requests, 1);
      assert.equal(server.requests.length, 1);
    });
  }

  test('an HTTP date is a wait, a date that has passed is none, and nobody waits for more than a day', () => {
    const now = Date.parse('2030-01-01T00:00:00Z');
    const wait = (text: string) => retryAfterMs(new Headers({ 'retry-after': text }), now);
    assert.equal(wait('Tue, 01 Jan 2030 00:01:30 GMT'), 90_000);
    assert.equal(wait('Mon, 31 Dec 2029 23:00:00 GMT'), undefined);
    assert.equal(wait('Tue, 01 Jan 2999 00:00:00 GMT'), 86_400_000);
    assert.equal(wait('1.5'), 1500);
    for (const nonsense of ['', '-5', 'soon', '1e9']) assert.equal(wait(nonsense), undefined);
  });

  test('a server that is not there is transient', async (t) => {
    const { server, client } = await setUp(t);
    server.close();
    const { errorClass, code } = await failureOf(client.ask(question()));
    assert.deepEqual([errorClass, code], ['transient', 'model_unreachable']);
  });

  test('a prompt that is too long is told as such in every dialect, with the context where it is said', async (t) => {
    const text = 'word '.repeat(4000);
    for (const dialect of ['openai', 'vllm', 'llamacpp', 'lmstudio', 'deepseek'] as const) {
      const { client } = await setUp(t, { dialect, contextTokens: 2048 });
      const error = await failureOf(client.ask(question({ user: text })));
      assert.ok(error instanceof PromptTooLong, dialect);
      assert.deepEqual([error.code, error.errorClass, error.contextTokens], ['context_exceeded', 'permanent', 2048]);
    }
  });

  test('the paper that a server echoes is in no message', async (t) => {
    const { server, client } = await setUp(t);
    const body = {
      detail: [
        {
          type: 'missing',
          loc: ['body', 'tools'],
          msg: 'Field required',
          input: { text: 'SECRET PAPER', response_format: 1 },
        },
      ],
    };
    server.faults.push({ status: 422, body });
    const { message, code } = await failureOf(client.ask(question()));
    assert.equal(code, 'model_rejected');
    assert.ok(!message.includes('SECRET') && message.includes('Field required'), message);
  });

  test('the signal ends a call at once, with its own reason', async (t) => {
    const { server, client } = await setUp(t);
    server.faults.push({ silence: true });
    const control = new AbortController();
    const call = client.ask(question({ signal: control.signal }));
    setTimeout(() => control.abort('shutdown'), 50);
    await assert.rejects(call, (reason) => reason === 'shutdown');
  });
});

describe('a redirect', () => {
  test('to another origin gets neither key nor paper, and is a fault of the configuration', async (t) => {
    let reached = 0;
    const other = createServer((_, response) => {
      reached += 1;
      response.end();
    }).listen(0, '127.0.0.1');
    t.after(() => other.close());
    await once(other, 'listening');
    const location = `http://127.0.0.1:${(other.address() as AddressInfo).port}/v1/chat/completions`;
    for (const status of [301, 302, 307, 308]) {
      const { server, client } = await setUp(t);
      server.faults.push({ status, headers: { location } });
      const error = await failureOf(client.ask(question()));
      assert.deepEqual([error.errorClass, error.code], ['configuration', 'model_redirected']);
    }
    assert.equal(reached, 0);
  });

  test('within the origin is followed with the whole request, but not in a circle', async (t) => {
    const { server, client } = await setUp(t);
    server.faults.push({ status: 308, headers: { location: '/v2/chat/completions' } });
    assert.ok((await client.ask(question())).value);
    assert.deepEqual(
      server.requests.map(({ path, authorization }) => [path, authorization]),
      [
        ['/v1/chat/completions', `Bearer ${KEY}`],
        ['/v2/chat/completions', `Bearer ${KEY}`],
      ],
    );
    for (let hop = 0; hop < 10; hop += 1) server.faults.push({ status: 307, headers: { location: '/again' } });
    assert.equal((await failureOf(client.ask(question()))).code, 'model_redirected');
    assert.equal(server.requests.length, 6);
  });
});

test('settings that can not work are refused without being repeated', () => {
  const good = { baseUrl: 'http://localhost/v1', model: 'm' };
  for (const bad of [
    { baseUrl: 'localhost' },
    { baseUrl: 'ftp://localhost/v1' },
    { baseUrl: 'http://me:hunter2@localhost/v1' },
    { model: '' },
    { apiKey: 'hunter2\n' },
    { contextTokens: 0 },
  ]) {
    assert.throws(
      () => createModelClient({ ...good, ...bad }),
      (error: Error) =>
        'errorClass' in error && error.errorClass === 'configuration' && !error.message.includes('hunter2'),
    );
  }
});
