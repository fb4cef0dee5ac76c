import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createMinerUParser } from '../../../src/extraction/mineru/parser.ts';
import { startJobsServer } from '../../support/mineru-jobs.ts';
import { type Fault, startStandIn } from '../../support/mineru-server.ts';
import { startTasksServer } from '../../support/mineru-tasks.ts';
import { failure, identify } from './support.ts';

describe('which MinerU answers', () => {
  test('3.0 speaks an earlier version of the same protocol; a later one is not guessed at', async () => {
    const server = await startTasksServer();
    server.health.protocol_version = 1;
    assert.match(await identify(server.parser()), /^v3@3\.4\.4:/);
    server.health.protocol_version = 3;
    await failure(identify(server.parser()), 'configuration mineru_wrong_server');
    await server.close();
  });

  test('a server below a path is found there', async () => {
    const server = await startStandIn({
      'GET /mineru/v1/health': () => ({ json: { status: 'ok', version: '4.2.3', features: {} } }),
    });
    assert.match(await identify(server.parser({ baseUrl: `${server.url}/mineru` })), /^v4@4\.2\.3:/);
    await server.close();
  });

  test('something else is no MinerU, even where it answers everything', async () => {
    const other = await startStandIn({ 'GET /.*': () => ({ json: { status: 'UP' } }) });
    await failure(identify(other.parser()), 'configuration mineru_wrong_server');
    const web = await startStandIn({ 'GET /.*': () => ({ bytes: Buffer.from('<html></html>') }) });
    await failure(identify(web.parser()), 'configuration mineru_wrong_server');
    await Promise.all([other.close(), web.close()]);
  });

  const unwell: [Fault, Parameters<typeof failure>[1]][] = [
    [{ answer: 503, body: { status: 'unhealthy', error: 'dispatcher stopped' } }, 'transient mineru_server_error'],
    [{ answer: 503, headers: { 'retry-after': '5' } }, 'defer mineru_busy'],
    [{ answer: 401 }, 'configuration mineru_unauthorized'],
    ['drop', 'transient mineru_unreachable'],
  ];
  for (const [fault, expected] of unwell) {
    test(`${JSON.stringify(fault)} to its health is ${expected}, and not another MinerU`, async () => {
      for (const server of [await startTasksServer(), await startJobsServer()]) {
        const parser = server.parser();
        server.plan('GET /health', fault);
        server.plan('GET /v1/health', fault);
        await failure(identify(parser), expected);
        await server.close();
      }
    });
  }

  test('4.x that lacks its models is for the operator', async () => {
    const server = await startJobsServer();
    const error = { type: 'engine_error', code: 'model_preload_files_missing', message: 'no models', retryable: false };
    server.plan('GET /v1/health', { answer: 503, body: { error } });
    await failure(identify(server.parser()), 'configuration mineru_options');
    await server.close();
  });

  test('options that make no sense are refused, without their values', async () => {
    for (const options of [
      { baseUrl: 'mineru.internal' },
      { baseUrl: 'file:///etc/passwd' },
      { baseUrl: 'http://user:cloud-key@mineru.internal' },
      { baseUrl: 'http://mineru.internal', apiKey: 'cloud-key \n' },
    ]) {
      await failure((async () => createMinerUParser(options))(), 'configuration mineru_options');
    }
  });
});
