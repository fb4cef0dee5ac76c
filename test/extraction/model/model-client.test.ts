import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Gate } from '../../../src/extraction/model/endpoint.ts';
import type { Dialect } from '../../support/model-dialects.ts';
import { failureOf, KEY, question, setUp } from './support.ts';

const formatsOf = (requests: { body: { response_format?: { type: string } } }[]) =>
  requests.map(({ body }) => body.response_format?.type ?? 'prompt');

describe('the way to ask for JSON', () => {
  const rows: [Dialect, string[]][] = [
    ['openai', ['json_schema']],
    ['vllm', ['json_schema']],
    ['llamacpp', ['json_schema']],
    ['ollama', ['json_schema']],
    ['ollama-cloud', ['json_schema']],
    ['lmstudio', ['json_schema']],
    ['deepseek', ['json_schema', 'json_object']],
    ['plain', ['json_schema', 'json_object', 'prompt']],
  ];
  for (const [dialect, formats] of rows) {
    test(`is found for ${dialect} and remembered: ${formats.join(', ')}`, async (t) => {
      const { server, client } = await setUp(t, { dialect, answer: () => ({ value: 1, quote: null }) });
      const user = 'What is it?\n- "a" (text)';
      const system = 'Answer.\n- "a" (text), "a"';
      const first = await client.ask(question({ system, user }));
      assert.equal((first.value.a as { value: number }).value, 1);
      assert.equal(first.usage.requests, formats.length);
      assert.deepEqual(formatsOf(server.requests), formats);
      await client.ask(question({ system, user }));
      assert.deepEqual(formatsOf(server.requests).slice(formats.length), formats.slice(-1));
    });
  }

  test('a schema that alone is not taken is not held against the next one', async (t) => {
    const { server, client } = await setUp(t);
    await client.ask(question({ schema: { type: 'object', properties: {}, required: [] } }));
    await client.ask(question());
    assert.deepEqual(formatsOf(server.requests), ['json_schema', 'json_object', 'json_schema']);
  });

  test('LM Studio, where a model takes no schema, is asked by the prompt alone', async (t) => {
    const { server, client } = await setUp(t, { dialect: 'lmstudio' });
    server.faults.push({ status: 400, body: { error: 'json_schema is not supported by this model' } });
    await client.ask(question());
    assert.deepEqual(formatsOf(server.requests), ['json_schema', 'json_object', 'prompt']);
  });

  test('no other error makes it fall', async (t) => {
    const { server, client } = await setUp(t);
    for (const status of [400, 422, 500]) {
      server.faults.push({ status, body: { error: { message: 'Unknown field "seed"' } } });
      await failureOf(client.ask(question()));
    }
    await client.ask(question());
    assert.deepEqual(formatsOf(server.requests), ['json_schema', 'json_schema', 'json_schema', 'json_schema']);
  });

  test('newer names of settings are learnt once', async (t) => {
    const { server, client } = await setUp(t, { dialect: 'openai-reasoning' });
    await client.ask(question());
    await client.ask(question());
    assert.equal(server.requests.length, 4);
    const { body } = server.requests.at(-1) ?? {};
    assert.deepEqual([body?.max_tokens, body?.temperature, body?.max_completion_tokens], [undefined, undefined, 8192]);
  });

  test("a model's longest answer is learnt", async (t) => {
    const { server, client } = await setUp(t);
    const message = 'Invalid max_tokens value, the valid range of max_tokens is [1, 4096]';
    server.faults.push({ status: 400, body: { error: { message } } });
    await client.ask(question());
    assert.deepEqual(
      server.requests.map(({ body }) => body.max_tokens),
      [8192, 4096],
    );
  });
});

describe('an answer that can not be used', () => {
  const blank = { message: { content: ' ' } };
  const invalid = { message: { content: '{"a": ' }, usage: { prompt_tokens: 0, completion_tokens: 100 } };

  test('is asked for again with its faults, twice at most', async (t) => {
    const { server, client } = await setUp(t);
    server.faults.push(invalid, blank);
    const { usage } = await client.ask(question());
    assert.equal(usage.requests, 3);
    const { messages } = server.requests.at(-1)?.body ?? { messages: [] };
    assert.deepEqual(
      messages.map(({ role }) => role),
      ['system', 'user', 'assistant', 'user', 'assistant', 'user'],
    );
    assert.match(messages[3]?.content ?? '', /no JSON object/);
    assert.match(messages[5]?.content ?? '', /empty/);
  });

  test('is permanent after that, and what it cost is told', async (t) => {
    const { server, client } = await setUp(t);
    server.faults.push(invalid, invalid, invalid);
    const error = await failureOf(client.ask(question()));
    assert.deepEqual([error.errorClass, error.code], ['permanent', 'model_answer_invalid']);
    assert.deepEqual([error.usage.requests, error.usage.completionTokens], [3, 300]);
  });

  test('is blank where the model only thought, or gave no choice', async (t) => {
    const { server, client } = await setUp(t);
    server.faults.push({ message: { content: null, reasoning_content: 'hm' } }, { raw: '{"choices": []}' });
    assert.equal((await client.ask(question())).usage.requests, 3);
  });

  test('that was cut is asked for once more with a larger limit', async (t) => {
    const { server, client } = await setUp(t, {}, { maxOutputTokens: 100 });
    const cut = { message: { content: '{"a": "b"}' }, finishReason: 'length' };
    server.faults.push(cut);
    await client.ask(question());
    server.faults.push(cut, cut);
    const error = await failureOf(client.ask(question()));
    assert.deepEqual([error.errorClass, error.code, error.usage.requests], ['permanent', 'model_answer_too_long', 2]);
    assert.deepEqual(
      server.requests.map(({ body }) => body.max_tokens),
      [100, 200, 100, 200],
    );
  });

  test('but has some of what was asked for is asked for again once, and then taken', async (t) => {
    const { server, client } = await setUp(t);
    const { value, usage } = await client.ask(question({ read: () => ({ value: { some: 1 }, faults: ['more'] }) }));
    assert.deepEqual([value, usage.requests, server.requests.length], [{ some: 1 }, 2, 2]);
    server.faults.push({ message: { content: '{}' } }, { status: 503 });
    const kept = await client.ask(question({ read: () => ({ value: { some: 2 }, faults: ['more'] }) }));
    assert.deepEqual([kept.value, kept.usage.requests], [{ some: 2 }, 2]);
  });
});

test('the usage has all that servers count, each request among it', async (t) => {
  const { server, client } = await setUp(t);
  const usage = {
    prompt_tokens: 100,
    completion_tokens: 20,
    prompt_tokens_details: { cached_tokens: 64 },
    completion_tokens_details: { reasoning_tokens: 12 },
  };
  server.faults.push(
    { message: { content: '' }, usage },
    { message: { content: '{}' }, usage: { prompt_tokens: 50, completion_tokens: 5, prompt_cache_hit_tokens: 6 } },
  );
  const reply = await client.ask(question());
  assert.deepEqual(reply.usage, {
    promptTokens: 150,
    completionTokens: 25,
    cachedTokens: 70,
    reasoningTokens: 12,
    requests: 2,
  });
});

describe('the gate', () => {
  test('every HTTP call passes it, and it sees the errors', async (t) => {
    const seen: string[] = [];
    let inside = 0;
    const gate: Gate = async (call) => {
      inside += 1;
      assert.equal(inside, 1);
      try {
        const result = await call();
        seen.push('through');
        return result;
      } catch (error) {
        seen.push((error as { code: string }).code);
        throw error;
      } finally {
        inside -= 1;
      }
    };
    const { server, client } = await setUp(t, { dialect: 'deepseek' }, { gate });
    await client.ask(question());
    server.faults.push({ status: 429, headers: { 'retry-after': '1' } });
    await failureOf(client.ask(question()));
    assert.deepEqual(seen, ['through', 'through', 'model_rate_limited']);
    assert.equal(server.running.most, 1);
  });

  test('one that refuses ends the request, with its own error', async (t) => {
    const { server, client } = await setUp(t);
    const refusal = new Error('no permit');
    await assert.rejects(client.ask(question({ gate: () => Promise.reject(refusal) })), refusal);
    assert.equal(server.requests.length, 0);
  });

  test('the key goes into the header and nowhere else', async (t) => {
    const { server, client } = await setUp(t, { apiKey: KEY });
    await client.ask(question());
    assert.equal(server.requests[0]?.authorization, `Bearer ${KEY}`);
    assert.ok(!JSON.stringify(server.requests[0]?.body).includes(KEY));
    const stranger = await setUp(t, { apiKey: 'another' });
    assert.equal((await failureOf(stranger.client.ask(question()))).code, 'model_unauthorized');
  });
});
