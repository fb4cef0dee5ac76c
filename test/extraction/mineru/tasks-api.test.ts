import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { PAGES, readForm, type StandIn } from '../../support/mineru-server.ts';
import { startFileParseServer, startTasksServer, type TasksServer } from '../../support/mineru-tasks.ts';
import { count, failure, identify, PDF, parse } from './support.ts';

describe('MinerU 3.x', () => {
  let server: TasksServer;
  before(async () => {
    server = await startTasksServer();
  });
  after(() => server.close());
  const original = { status: 'completed', error: null, results: undefined as unknown };
  before(() => {
    original.results = server.outcome.results;
  });
  afterEach(() => {
    Object.assign(server.outcome, original);
    server.requests.length = 0;
  });

  test('a paper comes back with its pages and headings', async () => {
    const document = await parse(server.parser());
    assert.deepEqual(document, {
      pages: PAGES,
      headings: [
        { page: 1, start: 2, end: 22, level: 1, text: 'Aspirin for headache' },
        { page: 2, start: 3, end: 10, level: 2, text: 'Results' },
      ],
      format: 'markdown',
      paged: true,
    });
    for (const { page, start, end, text } of document.headings) {
      assert.equal(document.pages[page - 1]?.slice(start, end), text);
    }
  });

  test('the form holds what is asked for, the bytes, and not the name of the file', async () => {
    await parse(server.parser({ backend: 'pipeline', language: 'en' }));
    const submitted = server.requests.find(({ route }) => route === 'POST /tasks');
    assert.ok(submitted);
    const { fields, file } = await readForm(submitted);
    assert.deepEqual(fields, {
      parse_method: 'auto',
      return_md: 'true',
      return_content_list: 'true',
      backend: 'pipeline',
      lang_list: 'en',
    });
    assert.equal(file.name, 'document.pdf');
    assert.deepEqual(new Uint8Array(await file.arrayBuffer()), PDF);
  });

  test('the identity tells the dialect, the version and what changes the text', async () => {
    assert.equal(await identify(server.parser()), 'v3@3.4.4:default:default:r1');
    assert.equal(await identify(server.parser({ backend: 'vlm-engine', language: 'en' })), 'v3@3.4.4:vlm-engine:en:r1');
  });

  test('a task that a restarted server forgot is submitted again', async () => {
    server.plan('GET /tasks/:id', () => server.forget());
    assert.deepEqual((await parse(server.parser())).pages, PAGES);
    assert.equal(count(server.routes(), 'POST /tasks'), 2);
    // Behind the address another version may have started.
    assert.equal(count(server.routes(), 'GET /health'), 2);
  });

  test('a result that is gone is parsed again', async () => {
    server.plan('GET /tasks/:id/result', () => server.forget());
    assert.deepEqual((await parse(server.parser())).pages, PAGES);
    assert.equal(count(server.routes(), 'POST /tasks'), 2);
  });

  test('a server that forgets again and again is a failure in the end', async () => {
    const forget = () => server.forget();
    server.plan('GET /tasks/:id', forget, forget, forget);
    await failure(parse(server.parser()), 'transient mineru_task_forgotten');
    assert.equal(count(server.routes(), 'POST /tasks'), 3);
  });

  test('a result that is not ready, in spite of its status, is asked for again', async () => {
    server.plan('GET /tasks/:id/result', { answer: 202, body: { status: 'processing' } });
    assert.deepEqual((await parse(server.parser())).pages, PAGES);
  });

  const conflicts: [string, string, Parameters<typeof failure>[1]][] = [
    ['a file that is broken', 'Failed to load file document.pdf: Data format error.', 'permanent pdf_invalid'],
    ['a file with a password', 'Failed to load document (PDFium: Incorrect password error).', 'permanent pdf_password'],
    ['an exhausted GPU', 'CUDA out of memory. Tried to allocate 2.00 GiB', 'transient mineru_out_of_resources'],
    ['a GPU that fails while loading', 'Failed to load file: CUDA error', 'transient mineru_out_of_resources'],
    ['a full disk', '[Errno 28] No space left on device', 'transient mineru_out_of_resources'],
    ['anything else', "'NoneType' object has no attribute 'get'", 'transient mineru_parse_failed'],
    ['no reason at all', '', 'transient mineru_parse_failed'],
  ];
  for (const [what, error, expected] of conflicts) {
    test(`a task that failed for ${what} is ${expected}`, async () => {
      Object.assign(server.outcome, { status: 'failed', error });
      await failure(parse(server.parser()), expected);
      assert.equal(count(server.routes(), 'POST /tasks'), 1);
    });

    test(`a 409 for ${what} is ${expected}`, async () => {
      server.plan('GET /tasks/:id/result', {
        answer: 409,
        body: { status: 'failed', message: 'Task execution failed', error },
      });
      await failure(parse(server.parser()), expected);
    });
  }

  const empty: [string, unknown][] = [
    ['md_content: null', { document: { md_content: null, content_list: null } }],
    ['an empty document', { document: {} }],
    ['an empty result', {}],
  ];
  for (const [what, results] of empty) {
    test(`${what} with status 200 is a failure`, async () => {
      server.outcome.results = results;
      await failure(parse(server.parser()), 'transient mineru_no_text');
    });
  }

  test('a paper without a letter is told from a failure', async () => {
    server.outcome.results = { document: { md_content: ' \n', content_list: '[]' } };
    await failure(parse(server.parser()), 'permanent document_empty');
  });

  test('without a readable list of blocks the markdown is one page', async () => {
    server.outcome.results = { document: { md_content: '# Title\n\n![](images/1.jpg)\nText.', content_list: '[{' } };
    const document = await parse(server.parser());
    assert.deepEqual(document.pages, ['# Title\n\n\nText.']);
    assert.equal(document.paged, false);
    assert.deepEqual(document.headings, [{ page: 1, start: 2, end: 7, level: 1, text: 'Title' }]);
  });

  const answers: [number, unknown, Parameters<typeof failure>[1]][] = [
    [400, { detail: 'Unsupported file type: html' }, 'permanent mineru_rejected'],
    [400, { detail: 'Invalid parse_method. Allowed values: auto' }, 'configuration mineru_options'],
    [400, { detail: "backend 'x' is not one of pipeline" }, 'configuration mineru_options'],
    [401, '', 'configuration mineru_unauthorized'],
    [403, '', 'configuration mineru_unauthorized'],
    [404, { detail: 'Not Found' }, 'configuration mineru_wrong_server'],
    [413, '<html>Request Entity Too Large</html>', 'permanent mineru_document_too_large'],
    [422, { detail: [{ loc: ['body', 'files'], msg: 'Field required' }] }, 'configuration mineru_options'],
    [429, '', 'defer mineru_busy'],
    [500, 'Internal Server Error', 'transient mineru_server_error'],
    [502, '<html>Bad Gateway</html>', 'transient mineru_server_error'],
    [503, { detail: 'Task manager is not initialized' }, 'transient mineru_server_error'],
    [200, '<html>Log in</html>', 'transient mineru_bad_answer'],
    [202, { status: 'pending' }, 'transient mineru_bad_answer'],
    [202, { task_id: '../../admin' }, 'transient mineru_bad_answer'],
  ];
  for (const [answer, body, expected] of answers) {
    test(`${answer} ${JSON.stringify(body)} to a submission is ${expected}`, async () => {
      server.plan('POST /tasks', { answer, body });
      await failure(parse(server.parser()), expected);
    });
  }
});

describe('MinerU 2.x', () => {
  let server: StandIn;
  before(async () => {
    server = await startFileParseServer();
  });
  after(() => server.close());

  test('a paper comes back from the one request that there is', async () => {
    const parser = server.parser();
    assert.deepEqual((await parse(parser)).pages, PAGES);
    assert.equal(await identify(parser), 'v2:default:default:r1');
  });

  const answers: [number, unknown, Parameters<typeof failure>[1]][] = [
    [503, { detail: 'Server is at maximum capacity: 3. Please try again later.' }, 'defer mineru_busy'],
    [503, '<html>Service Unavailable</html>', 'transient mineru_server_error'],
    [500, { error: 'Failed to process file: CUDA out of memory' }, 'transient mineru_out_of_resources'],
    [500, { error: 'Failed to process file: list index out of range' }, 'transient mineru_parse_failed'],
    [500, 'Internal Server Error', 'transient mineru_server_error'],
    [
      400,
      { error: 'Failed to load file: Failed to load document (PDFium: Data format error).' },
      'permanent pdf_invalid',
    ],
    [400, { error: 'Unsupported file type: .exe' }, 'permanent mineru_rejected'],
  ];
  for (const [answer, body, expected] of answers) {
    test(`${answer} ${JSON.stringify(body)} is ${expected}`, async () => {
      server.plan('POST /file_parse', { answer, body });
      await failure(parse(server.parser()), expected);
    });
  }

  test('the long request ends with the time for the whole paper', async () => {
    server.plan('POST /file_parse', 'silence');
    await failure(parse(server.parser({ parseTimeoutMs: 50, requestTimeoutMs: 20 })), 'transient mineru_timeout');
  });
});
