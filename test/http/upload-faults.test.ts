import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { afterEach, test } from 'node:test';
import { form, json, openAppBench, problem, refusal } from './bench.ts';
import { ownTemporaryFolder } from './temporary-folder.ts';

const temporary = ownTemporaryFolder();

const { appWith, config, sql } = await openAppBench(import.meta.url);
const limited = appWith({ config: { ...config, maxDocumentBytes: 1000, maxUploadBytes: 4000, maxUploadFiles: 3 } });

/** Nothing is left of a refused upload: the table stays as it was, and no file waits to be forgotten. */
afterEach(async () => {
  const [row] = await sql`
    select
      (select count(*)::int from asl_schema.document where project_id <> 'stored') as documents,
      (select count(*)::int from asl_schema.document_content) as contents,
      (select count(*)::int from asl_schema.document where project_id = 'stored') as stored`;
  assert.deepEqual(row, { documents: 0, contents: row?.stored, stored: row?.stored });
  assert.deepEqual(await readdir(temporary), []);
});

const send = (body: string | FormData, headers: Record<string, string> = {}) =>
  limited.request('/documents', { method: 'POST', body, headers });

function part(name: string, content: string, filename?: string): string {
  const file = filename === undefined ? '' : `; filename="${filename}"`;
  return `--B\r\nContent-Disposition: form-data; name="${name}"${file}\r\n\r\n${content}\r\n`;
}
const multipart = (body: string, contentType = 'multipart/form-data; boundary=B') =>
  send(body, { 'Content-Type': contentType });

const project = part('projectId', 'refused');
const file = part('files', 'hello', 'a.txt');
const end = '--B--\r\n';

const malformed: [what: string, body: string, contentType?: string][] = [
  ['without a boundary in its Content-Type', project + file + end, 'multipart/form-data'],
  ['with another boundary than it says', project + file + end, 'multipart/form-data; boundary=other'],
  ['that is empty', ''],
  [
    'that breaks off in a file',
    `${project}--B\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\nhel`,
  ],
  ['that breaks off in a header', `${project}${file}--B\r\nContent-Disp`],
  ['that breaks off before its end', project + file],
];
for (const [what, body, contentType] of malformed) {
  test(`an upload ${what} is refused`, async () => {
    assert.deepEqual(await refusal(multipart(body, contentType)), {
      status: 400,
      code: 'malformed_multipart',
      paths: [''],
    });
  });
}

const faulty: [what: string, body: string, paths: string[]][] = [
  ['without files', project, ['files']],
  ['without a project', file, ['projectId']],
  ['with neither', '', ['projectId', 'files']],
  ['with an empty project', part('projectId', '') + file, ['projectId']],
  ['with a project of two lines', part('projectId', 'a\nb') + file, ['projectId']],
  ['with a NUL in the project', part('projectId', 'a\0b') + file, ['projectId']],
  ['with a project that is too long', part('projectId', 'x'.repeat(201)) + file, ['projectId']],
  ['with a project that is far too long', part('projectId', 'x'.repeat(3000)) + file, ['projectId']],
  ['with two projects', project + project + file, ['projectId']],
  ['with three projects', project + project + project + file, ['projectId']],
  ['with a field that is not known', project + part('project', 'a') + file, ['project']],
  ['with a file in a field that is not known', project + part('file', 'a', 'a.txt'), ['file']],
  ['with a project that is a file', part('projectId', 'a', 'a.txt') + file, ['projectId']],
  ['with a text in the place of a file', project + part('files', '@a.txt'), ['files']],
];
for (const [what, body, paths] of faulty) {
  test(`an upload ${what} is refused with the field's name`, async () => {
    assert.deepEqual(await refusal(multipart(body + end)), { status: 400, code: 'invalid_request', paths });
  });
}

test('one file over the limit refuses the upload, and says which', async () => {
  const files = { 'a.txt': 'x'.repeat(1000), 'b.txt': 'y'.repeat(1001) };
  const { status, code, paths } = await problem(send(form('refused', files)));
  assert.deepEqual([status, code, paths], [413, 'document_too_large', ['files[1]']]);
  const fits = await json(send(form('stored', { 'a.txt': 'x'.repeat(1000) })), 201);
  assert.equal(fits.data[0].byteSize, 1000);
});

test('too many files, and too much of them together, are refused', async () => {
  const four = Object.fromEntries(['a', 'b', 'c', 'd'].map((name) => [name, name]));
  assert.deepEqual(await refusal(send(form('refused', four))), { status: 413, code: 'too_many_files', paths: [] });
  const { d: _, ...three } = four;
  assert.equal((await json(send(form('stored', three)), 201)).data.length, 3);
  const large = Object.fromEntries(['a', 'b', 'c'].map((name) => [name, name.repeat(1000)]));
  const padded = multipart(
    `${'-'.repeat(2000)}\r\n${Object.entries(large)
      .map(([n, c]) => part('files', c, n))
      .join('')}${project}${end}`,
  );
  assert.deepEqual(await refusal(padded), { status: 413, code: 'upload_too_large', paths: [] });
});

test('a raw body over the limit is refused by its Content-Length alone, before a byte is read', async () => {
  const asked: unknown[] = [];
  const body = new ReadableStream({ pull: (controller) => void asked.push(controller) }, { highWaterMark: 0 });
  const answer = limited.request('/documents?projectId=refused', {
    method: 'POST',
    body,
    headers: { 'Content-Length': '1001' },
    duplex: 'half',
  } as RequestInit);
  assert.deepEqual(await refusal(answer), { status: 413, code: 'document_too_large', paths: [] });
  assert.deepEqual(asked, []);
});

for (const kind of ['raw', 'multipart'] as const) {
  test(`a ${kind} body of unknown length is refused as soon as it is too long, whatever is still to come`, async () => {
    let sent = 0;
    const body = new ReadableStream({
      start(controller) {
        if (kind === 'multipart') controller.enqueue(Buffer.from(part('files', '', 'a.txt').slice(0, -2)));
      },
      // Never ends, and falls silent after what must be enough.
      pull: (controller) => (++sent <= 30 ? controller.enqueue(Buffer.alloc(100)) : new Promise(() => {})),
    });
    const answer = limited.request(`/documents${kind === 'raw' ? '?projectId=refused' : ''}`, {
      method: 'POST',
      body,
      headers: kind === 'raw' ? {} : { 'Content-Type': 'multipart/form-data; boundary=B' },
      duplex: 'half',
    } as RequestInit);
    const { status, code } = await problem(answer);
    assert.deepEqual([status, code], [413, 'document_too_large']);
  });

  test(`a ${kind} body that breaks off leaves nothing behind`, async () => {
    let sent = 0;
    const body = new ReadableStream({
      start(controller) {
        if (kind === 'multipart') controller.enqueue(Buffer.from(part('files', '', 'a.txt').slice(0, -2)));
      },
      pull(controller) {
        // The code of a lost connection, which is the client's here and must not be taken for the database's.
        if (++sent > 3) controller.error(Object.assign(new Error('aborted'), { code: 'ECONNRESET' }));
        else controller.enqueue(Buffer.alloc(100));
      },
    });
    const answer = limited.request(`/documents${kind === 'raw' ? '?projectId=refused' : ''}`, {
      method: 'POST',
      body,
      headers: kind === 'raw' ? {} : { 'Content-Type': 'multipart/form-data; boundary=B' },
      duplex: 'half',
    } as RequestInit);
    assert.deepEqual(await refusal(answer), { status: 400, code: 'incomplete_body', paths: [] });
  });
}
