import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, afterEach, before, describe, test } from 'node:test';
import { type JobsServer, jobsFailure, startJobsServer } from '../../support/mineru-jobs.ts';
import { PAGES } from '../../support/mineru-server.ts';
import { count, failure, identify, PDF, parse } from './support.ts';

describe('MinerU 4.x', () => {
  let server: JobsServer;
  before(async () => {
    server = await startJobsServer();
  });
  after(() => server.close());
  const initial: Partial<JobsServer['mode']> = {};
  before(() => Object.assign(initial, structuredClone(server.mode)));
  afterEach(() => {
    Object.assign(server.mode, structuredClone(initial));
    server.forget();
    server.requests.length = 0;
  });

  test('a paper is uploaded, parsed and comes back with its pages', async () => {
    const document = await parse(server.parser({ backend: 'standard' }));
    assert.deepEqual(document.pages, PAGES);
    assert.deepEqual(
      document.headings.map(({ page, text }) => [page, text]),
      [
        [1, 'Aspirin for headache'],
        [2, 'Results'],
      ],
    );
    const bodyOf = (wanted: string) => server.requests.find(({ route }) => route === wanted)?.body ?? Buffer.alloc(0);
    assert.deepEqual(JSON.parse(bodyOf('POST /v1/uploads').toString()), {
      filename: 'document.pdf',
      bytes: PDF.byteLength,
      mime_type: 'application/pdf',
      purpose: 'parse',
      sha256sum: createHash('sha256').update(PDF).digest('hex'),
    });
    assert.deepEqual(new Uint8Array(bodyOf('PUT /v1/uploads/:id/content')), PDF);
    const job = JSON.parse(bodyOf('POST /v1/parse/jobs').toString());
    assert.deepEqual(job.output_formats, ['markdown', 'content_list']);
    assert.equal(job.tier, 'standard');
  });

  test('bytes that the server has already are not sent again', async () => {
    const parser = server.parser();
    await parse(parser);
    assert.deepEqual((await parse(parser)).pages, PAGES);
    assert.equal(count(server.routes(), 'PUT /v1/uploads/:id/content'), 1);
    assert.equal(count(server.routes(), 'POST /v1/parse/jobs'), 2);
  });

  test('its own upload route gets the key and the given headers, whatever host the server believes to have', async () => {
    server.mode.key = 'jobs-key';
    assert.deepEqual((await parse(server.parser({ apiKey: 'jobs-key' }))).pages, PAGES);
    const put = server.requests.find(({ method }) => method === 'PUT');
    assert.equal(put?.headers.authorization, 'Bearer jobs-key');
    assert.equal(put?.headers['content-type'], 'application/pdf');
    assert.equal(put?.headers['x-amz-content-sha256'], createHash('sha256').update(PDF).digest('hex'));
  });

  test('a signed URL of a storage gets no key', async () => {
    server.mode.key = 'jobs-key';
    server.mode.storage = `${server.url}/storage/1?Signature=secret`;
    assert.deepEqual((await parse(server.parser({ apiKey: 'jobs-key' }))).pages, PAGES);
    const put = server.requests.find(({ method }) => method === 'PUT');
    assert.equal(put?.url, '/storage/1?Signature=secret');
    assert.equal(put?.headers.authorization, undefined);
  });

  test('a storage that refuses is no matter of the key', async () => {
    server.mode.storage = `${server.url}/storage/1?Signature=secret`;
    server.plan('PUT /storage/:id', { answer: 403 });
    await failure(parse(server.parser()), 'transient mineru_bad_upload');
  });

  test('a deployment without lists of blocks gives its markdown', async () => {
    server.mode.formats = ['markdown'];
    const document = await parse(server.parser());
    assert.equal(document.paged, false);
    assert.match(document.pages[0] ?? '', /^# Aspirin/);
  });

  test('the identity tells the version, and is told anew when a result comes from another', async () => {
    const parser = server.parser();
    assert.equal(await identify(parser), 'v4@4.2.3:default:default:r1');
    server.mode.version = '4.3.0';
    assert.equal(await identify(parser), 'v4@4.2.3:default:default:r1');
    await parse(parser);
    assert.equal(await identify(parser), 'v4@4.3.0:default:default:r1');
  });

  for (const route of [
    'POST /v1/uploads/:id/complete',
    'POST /v1/parse/jobs',
    'GET /v1/parse/jobs/:id',
    'GET /v1/files/:id/content',
  ]) {
    test(`what a restarted server forgot before ${route} is handed in again`, async () => {
      server.plan(route, () => server.forget());
      assert.deepEqual((await parse(server.parser())).pages, PAGES);
      assert.equal(count(server.routes(), 'POST /v1/uploads'), 2);
    });
  }

  test('an upload that is not ready is completed a little later', async () => {
    const code = 'upload_not_ready';
    server.plan('POST /v1/uploads/:id/complete', jobsFailure(409, { code, retryable: true }));
    assert.deepEqual((await parse(server.parser())).pages, PAGES);
    assert.equal(count(server.routes(), 'POST /v1/uploads'), 1);
  });

  test('a completion whose answer was lost is looked up', async () => {
    server.plan('POST /v1/uploads/:id/complete', 'cut');
    assert.deepEqual((await parse(server.parser())).pages, PAGES);
    assert.equal(count(server.routes(), 'GET /v1/uploads/:id'), 1);
  });

  const answers: [number, Record<string, unknown>, Parameters<typeof failure>[1]][] = [
    [500, { code: 'parse_failed', type: 'engine_error', retryable: false }, 'permanent mineru_rejected'],
    [500, { code: 'parse_failed', retryable: false, message: 'broken xref' }, 'permanent pdf_invalid'],
    [500, { code: 'parse_failed', retryable: false, message: 'CUDA out of memory' }, 'permanent mineru_rejected'],
    [500, { code: 'parse_oom', type: 'engine_error', retryable: true }, 'transient mineru_server_error'],
    [503, { code: 'engine_unavailable', retryable: true }, 'transient mineru_server_error'],
    [500, { code: 'internal_error', retryable: false }, 'permanent mineru_rejected'],
    [500, { code: 'internal_error' }, 'transient mineru_server_error'],
    [503, { code: 'server_busy', retryable: true }, 'defer mineru_busy'],
    [429, { code: 'rate_limit_exceeded', type: 'rate_limit_error' }, 'defer mineru_busy'],
    [403, { code: 'quota_exceeded', type: 'permission_error', retryable: false }, 'defer mineru_quota'],
    [401, { code: 'invalid_api_key', type: 'authentication_error', retryable: false }, 'configuration mineru_options'],
    [403, { code: null, type: 'permission_error' }, 'configuration mineru_unauthorized'],
    [503, { code: 'quality_tier_unavailable', retryable: false }, 'configuration mineru_options'],
    [400, { code: 'tier_mismatch', type: 'engine_error', retryable: false }, 'configuration mineru_options'],
    [400, { code: 'file_encrypted', retryable: false }, 'permanent pdf_password'],
    [400, { code: 'file_corrupted', retryable: false }, 'permanent pdf_invalid'],
    [413, { code: 'file_too_large', retryable: false }, 'permanent mineru_document_too_large'],
    [400, { code: 'file_hash_mismatch' }, 'transient mineru_bad_upload'],
    [400, { code: 'invalid_request', retryable: false }, 'permanent mineru_rejected'],
  ];
  for (const [status, error, expected] of answers) {
    test(`${status} ${JSON.stringify(error)} is ${expected}`, async () => {
      server.plan('POST /v1/parse/jobs', jobsFailure(status, error));
      await failure(parse(server.parser()), expected);
    });
  }

  const ends: [string, unknown, Parameters<typeof failure>[1]][] = [
    ['failed', { type: 'engine_error', code: 'parse_failed', message: 'odd' }, 'permanent mineru_rejected'],
    [
      'failed',
      { type: 'engine_error', code: 'parse_failed', message: 'CUDA error' },
      'transient mineru_out_of_resources',
    ],
    ['failed', { code: 'parse_timeout', message: 'slow', retryable: true }, 'transient mineru_server_error'],
    ['failed', { code: 'parse_empty', message: 'nothing there' }, 'permanent document_empty'],
    ['partial', { code: 'file_corrupted', message: 'odd' }, 'permanent pdf_invalid'],
    ['failed', undefined, 'transient mineru_parse_failed'],
    ['canceled', undefined, 'transient mineru_canceled'],
    ['paused', undefined, 'transient mineru_bad_answer'],
  ];
  for (const [status, error, expected] of ends) {
    test(`a job that ends as ${status} with ${JSON.stringify(error)} is ${expected}`, async () => {
      Object.assign(server.mode, { status, error });
      await failure(parse(server.parser()), expected);
      assert.equal(count(server.routes(), 'POST /v1/parse/jobs'), 1);
    });
  }
});
