import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { ModelClientOptions } from '../../../src/extraction/model/endpoint.ts';
import { createModelClient, type ModelClient, type ModelRequest } from '../../../src/extraction/model/model-client.ts';
import { ModelError } from '../../../src/extraction/model/model-error.ts';
import { parseObject } from '../../../src/extraction/model/parse-object.ts';
import { type ModelServer, type ModelServerOptions, modelServer } from '../../support/model-server.ts';

export const KEY = 'sk-test-0123456789abcdef';
export const signal = (): AbortSignal => new AbortController().signal;

/** A server and its client, both gone with the test. */
export async function setUp(
  t: TestContext,
  server: ModelServerOptions = {},
  client: Partial<ModelClientOptions> = {},
): Promise<{ server: ModelServer; client: ModelClient }> {
  const running = await modelServer(server);
  t.after(() => running.close());
  return {
    server: running,
    client: createModelClient({ baseUrl: running.baseUrl, model: 'm', apiKey: KEY, ...client }),
  };
}

const SCHEMA = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'], additionalProperties: false };

/** The least that can be asked: any JSON object is an answer. */
export function question(more: Partial<ModelRequest<Record<string, unknown>>> = {}) {
  return {
    system: 'Answer with one JSON object.',
    user: 'What is a?',
    schema: SCHEMA,
    read: (content: string) => {
      const value = parseObject(content);
      return value === undefined ? { faults: ['it holds no JSON object'] } : { value, faults: [] };
    },
    signal: signal(),
    ...more,
  };
}

/** The ModelError that a promise ends in. */
export async function failureOf(promise: Promise<unknown>): Promise<ModelError> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof ModelError, `${error}`);
  assert.ok(error.message.length <= 500 && !error.message.includes(KEY), error.message);
  return error;
}
