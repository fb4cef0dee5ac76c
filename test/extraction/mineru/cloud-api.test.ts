import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { CLOUD_KEY, type CloudServer, cloudFailure, startCloudServer } from '../../support/mineru-cloud.ts';
import { PAGES } from '../../support/mineru-server.ts';
import { zipOf } from '../../support/mineru-zip.ts';
import { count, failure, identify, PDF, parse } from './support.ts';

describe("MinerU's cloud", () => {
  let server: CloudServer;
  before(async () => {
    server = await startCloudServer();
  });
  after(() => server.close());
  const initial: Partial<CloudServer['outcome']> = {};
  before(() => Object.assign(initial, server.outcome));
  afterEach(() => {
    Object.assign(server.outcome, initial);
    server.requests.length = 0;
    server.storage.requests.length = 0;
  });

  test('a paper is put to its signed URL and comes back in an archive', async () => {
    const document = await parse(server.parser({ backend: 'vlm', language: 'en' }));
    assert.deepEqual(document.pages, PAGES);
    assert.equal(document.paged, true);
    const [put, get] = server.storage.requests;
    assert.deepEqual(new Uint8Array(put?.body ?? []), PDF);
    assert.equal(put?.headers['content-type'], undefined);
    assert.equal(put?.headers.authorization, undefined);
    assert.equal(get?.headers.authorization, undefined);
    const submitted = server.requests.find(({ method }) => method === 'POST');
    assert.equal(submitted?.headers.authorization, `Bearer ${CLOUD_KEY}`);
    const { files, ...rest } = JSON.parse(submitted?.body.toString() ?? '');
    assert.deepEqual(rest, { model_version: 'vlm', language: 'en' });
    assert.equal(files[0].name, 'document.pdf');
  });

  test('it is known by its way to report errors, or by its path without a question', async () => {
    assert.equal(await identify(server.parser()), 'cloud:default:default:r1');
    server.requests.length = 0;
    const parser = server.parser({ baseUrl: `${server.url}/api/v4` });
    assert.equal(await identify(parser), 'cloud:default:default:r1');
    assert.equal(server.requests.length, 0);
    assert.deepEqual((await parse(parser)).pages, PAGES);
  });

  const codes: [Parameters<typeof failure>[1], (number | string)[]][] = [
    ['configuration mineru_unauthorized', ['A0202', 'A0211', -60013]],
    ['permanent mineru_rejected', [-500, -10002, -60002, -60006, -60015, -60016, -60017]],
    ['permanent pdf_invalid', [-60003]],
    ['permanent document_empty', [-60004]],
    ['permanent mineru_document_too_large', [-60005]],
    ['transient mineru_server_error', [-10001, -60001, -60007, -60008, -60009, -60010, -60020, -99999]],
    ['transient mineru_task_forgotten', [-60011, -60012]],
    ['defer mineru_quota', [-60018, -60019]],
  ];
  for (const [expected, list] of codes) {
    for (const code of list) {
      test(`${code} inside a 200 is ${expected}`, async () => {
        const faults = Array.from({ length: expected.endsWith('forgotten') ? 3 : 1 }, () => cloudFailure(code));
        server.plan('POST /api/v4/file-urls/batch', ...faults);
        const error = await failure(parse(server.parser({ dialect: 'cloud' })), expected);
        if (expected.startsWith('defer')) assert.equal(error.retryAfterMs, 3_600_000);
      });
    }
  }

  test('a gateway that asks for a wait gets it', async () => {
    const body = { code: 42900, msg: 'too many requests' };
    server.plan('POST /api/v4/file-urls/batch', { answer: 429, body, headers: { 'retry-after': '9' } });
    const error = await failure(parse(server.parser({ dialect: 'cloud' })), 'defer mineru_busy');
    assert.equal(error.retryAfterMs, 9000);
  });

  for (const code of [-60011, -60012]) {
    test(`${code} while it waits submits the paper again`, async () => {
      server.plan('GET /api/v4/extract-results/batch/:id', cloudFailure(code));
      assert.deepEqual((await parse(server.parser({ dialect: 'cloud' }))).pages, PAGES);
      assert.equal(count(server.routes(), 'POST /api/v4/file-urls/batch'), 2);
    });
  }

  test('a poll that goes wrong is no failed paper', async () => {
    server.plan('GET /api/v4/extract-results/batch/:id', cloudFailure(-10001), { answer: 502 }, 'drop');
    assert.deepEqual((await parse(server.parser({ dialect: 'cloud' }))).pages, PAGES);
    assert.equal(count(server.routes(), 'POST /api/v4/file-urls/batch'), 1);
  });

  const reasons: [string, Parameters<typeof failure>[1]][] = [
    ['file is corrupted', 'permanent pdf_invalid'],
    ['number of pages exceeds limit (600 pages), please split the file', 'permanent mineru_rejected'],
    ['parse timeout', 'transient mineru_out_of_resources'],
    ['something went wrong, see https://a.example/x?Signature=y', 'transient mineru_parse_failed'],
  ];
  for (const [errMsg, expected] of reasons) {
    test(`a batch that failed with "${errMsg}" is ${expected}`, async () => {
      Object.assign(server.outcome, { state: 'failed', errMsg });
      await failure(parse(server.parser()), expected);
    });
  }

  test('a storage that refuses the bytes is tried with the next attempt', async () => {
    server.storage.plan('PUT /up/:id', { answer: 403, body: '<Error>SignatureDoesNotMatch</Error>' });
    await failure(parse(server.parser()), 'transient mineru_bad_upload');
  });

  test('an archive whose link is over, or that ends early, is fetched again', async () => {
    server.storage.plan('GET /zip/:id', { answer: 403 }, 'cut');
    assert.deepEqual((await parse(server.parser())).pages, PAGES);
    assert.equal(count(server.routes(), 'POST /api/v4/file-urls/batch'), 1);
  });

  test('an archive without a list of blocks gives its markdown', async () => {
    server.outcome.archive = zipOf({ 'full.md': 'Text.' });
    const document = await parse(server.parser());
    assert.deepEqual(document.pages, ['Text.']);
    assert.equal(document.paged, false);
  });

  test('something else than an archive, or an empty one, is a failure', async () => {
    server.outcome.archive = Buffer.from('<html>gone</html>');
    await failure(parse(server.parser()), 'transient mineru_bad_answer');
    server.outcome.archive = zipOf({ 'layout.json': '{}' });
    await failure(parse(server.parser()), 'transient mineru_no_text');
  });
});
