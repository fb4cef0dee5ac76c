import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { form, json, openAppBench, problem, refusal } from './bench.ts';

const { app } = await openAppBench(import.meta.url);
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const upload = (data: FormData) => app.request('/documents', { method: 'POST', body: data });
const raw = (query: string, body: string, headers = {}) =>
  app.request(`/documents?${query}`, { method: 'POST', body, headers });

test('files of one upload become documents in the order in which they were sent', async () => {
  const files = {
    'b.pdf': '%PDF-1.4 b',
    'a.md': '# a',
    'Über „Wirkung“ 研究.txt': 'c',
    'broken.pdf': 'none',
    'empty.pdf': '',
  };
  const { data } = await json(upload(form('order', files)), 201);
  assert.deepEqual(
    data.map(({ documentId, createdAt, ...rest }: Record<string, string>) => rest),
    Object.entries(files).map(([filename, content]) => ({
      projectId: 'order',
      filename,
      mediaType: filename.endsWith('.pdf')
        ? 'application/pdf'
        : filename.endsWith('.md')
          ? 'text/markdown'
          : 'text/plain',
      byteSize: Buffer.byteLength(content),
      sha256: sha256(content),
    })),
  );
  const ids = data.map(({ documentId }: { documentId: string }) => documentId);
  assert.deepEqual(ids, ids.toSorted());
  assert.ok(data.every(({ createdAt }: { createdAt: string }) => /^\d{4}-\d\d-\d\dT.*Z$/.test(createdAt)));
  assert.deepEqual((await json(app.request('/documents?projectId=order'))).data, data);
  assert.deepEqual(await json(app.request(`/documents/${ids[0].toUpperCase()}`)), data[0]);
});

test('projectId may come after the files', async () => {
  const data = new FormData();
  data.append('files', new File(['one'], 'one.txt'));
  data.append('projectId', 'late');
  data.append('files', new File(['two'], 'two.txt'));
  const answer = await json(upload(data), 201);
  assert.deepEqual(
    answer.data.map((document: Record<string, string>) => [document.projectId, document.filename]),
    [
      ['late', 'one.txt'],
      ['late', 'two.txt'],
    ],
  );
});

test('the bytes of one file can be sent as they are, whatever the client calls them', async () => {
  for (const contentType of ['application/pdf', 'application/x-www-form-urlencoded', 'text/plain', 'image/png']) {
    const content = `%PDF-1.4 ${contentType}`;
    const query = `projectId=raw&filename=${encodeURIComponent('../Über 研究.pdf')}`;
    const { data } = await json(raw(query, content, { 'Content-Type': contentType }), 201);
    assert.equal(data.length, 1);
    assert.deepEqual([data[0].filename, data[0].mediaType], ['Über 研究.pdf', 'application/pdf']);
    assert.equal(data[0].sha256, sha256(content));
  }
  const { data } = await json(raw('projectId=raw', '', {}), 201);
  assert.deepEqual([data[0].filename, data[0].byteSize], ['document', 0]);
});

test('a file name in the encoding of RFC 5987, or with what forms cannot hold as it is, is read as it was meant', async () => {
  const body = [
    `--B\r\nContent-Disposition: form-data; name="projectId"\r\n\r\nnames\r\n`,
    `--B\r\nContent-Disposition: form-data; name="files"; filename*=UTF-8''%E7%A0%94.txt\r\n\r\n1\r\n`,
    `--B\r\nContent-Disposition: form-data; name="files"; filename="a %22b%22.txt"\r\n\r\n2\r\n`,
    `--B\r\nContent-Disposition: form-data; name="files"; filename="C:\\dir\\c.txt"\r\n\r\n3\r\n--B--\r\n`,
  ].join('');
  const headers = { 'Content-Type': 'multipart/form-data; boundary=B' };
  const { data } = await json(app.request('/documents', { method: 'POST', body, headers }), 201);
  assert.deepEqual(
    data.map((document: { filename: string }) => document.filename),
    ['研.txt', 'a "b".txt', 'c.txt'],
  );
});

test('the same bytes sent again, or by many at once, are the same document', async () => {
  const first = await json(upload(form('same', { 'a.txt': 'same', 'b.txt': 'same' })), 201);
  assert.deepEqual(first.data[1], first.data[0]);
  const again = await Promise.all(
    Array.from({ length: 10 }, (_, i) => json(upload(form('same', { [`${i}.txt`]: `at once`, 'x.txt': 'same' })), 201)),
  );
  assert.equal(new Set(again.map(({ data }) => data[0].documentId)).size, 1);
  assert.ok(again.every(({ data }) => data[1].documentId === first.data[0].documentId));
  assert.equal((await json(app.request('/documents?projectId=same'))).data.length, 2);
});

test('a list is walked page by page', async () => {
  const files = Object.fromEntries(Array.from({ length: 5 }, (_, i) => [`${i}.txt`, `page ${i}`]));
  const { data } = await json(upload(form('pages', files)), 201);
  const walked = [];
  for (let path: string | null = '/documents?projectId=pages&limit=2'; path !== null; ) {
    const page = await json(app.request(path));
    walked.push(page.data);
    path = page.nextCursor && `/documents?projectId=pages&limit=2&cursor=${page.nextCursor}`;
  }
  assert.deepEqual(walked, [data.slice(0, 2), data.slice(2, 4), data.slice(4)]);
  const whole = await json(app.request('/documents?projectId=pages&limit=5'));
  assert.deepEqual(whole, { data, nextCursor: null });
});

test('a document is downloaded as it was, under its own name, and never shown as a page', async () => {
  const content = `%PDF-1.4 ${'x'.repeat(2_500_000)}`;
  const filename = `Über "Wirkung" (1)'s 研究.pdf`;
  const { data } = await json(raw(`projectId=download&filename=${encodeURIComponent(filename)}`, content), 201);
  const path = `/documents/${data[0].documentId}/content`;
  const answer = await app.request(path);
  assert.equal(answer.status, 200);
  assert.equal(await answer.text(), content);
  const headers = {
    'content-type': 'application/pdf',
    'content-length': String(content.length),
    'content-disposition':
      `attachment; filename="_ber _Wirkung_ (1)'s __.pdf"; ` +
      `filename*=UTF-8''%C3%9Cber%20%22Wirkung%22%20%281%29%27s%20%E7%A0%94%E7%A9%B6.pdf`,
    'x-content-type-options': 'nosniff',
    etag: `"${data[0].sha256}"`,
  };
  assert.deepEqual(Object.fromEntries(answer.headers), headers);
  const head = await app.request(path, { method: 'HEAD' });
  assert.deepEqual([head.status, await head.text(), Object.fromEntries(head.headers)], [200, '', headers]);
  const known = await app.request(path, { headers: { 'If-None-Match': headers.etag } });
  assert.deepEqual([known.status, await known.text()], [304, '']);
  const empty = await json(raw('projectId=download&filename=empty.txt', ''), 201);
  const nothing = await app.request(`/documents/${empty.data[0].documentId}/content`);
  assert.deepEqual([nothing.status, nothing.headers.get('content-length'), await nothing.text()], [200, '0', '']);
});

test('a deleted document is gone, and no other is', async () => {
  const { data } = await json(upload(form('deleted', { 'a.txt': 'gone', 'b.txt': 'stays' })), 201);
  const path = `/documents/${data[0].documentId}`;
  const answer = await app.request(path, { method: 'DELETE' });
  assert.deepEqual([answer.status, await answer.text()], [204, '']);
  const gone = { status: 404, code: 'document_not_found', paths: [] };
  assert.deepEqual(await refusal(app.request(path)), gone);
  assert.deepEqual(await refusal(app.request(`${path}/content`)), gone);
  assert.deepEqual(await refusal(app.request(path, { method: 'DELETE' })), gone);
  assert.deepEqual((await json(app.request('/documents?projectId=deleted'))).data, [data[1]]);
});

const lists: [query: string, paths: string[]][] = [
  ['limit=0', ['limit']],
  ['limit=501', ['limit']],
  ['limit=ten', ['limit']],
  ['cursor=x', ['cursor']],
  ['projectId=', ['projectId']],
  ['projectId=a%00b', ['projectId', 'projectId']],
  [`projectId=${'x'.repeat(201)}`, ['projectId']],
  ['projectId=a&projectId=b', ['projectId']],
  ['offset=1&page=2', ['offset', 'page']],
  ['limit=x&offset=1', ['limit', 'offset']],
];
for (const [query, paths] of lists) {
  test(`a list with ?${query.slice(0, 30)} is refused, and every fault is named`, async () => {
    assert.deepEqual(await refusal(app.request(`/documents?${query}`)), {
      status: 400,
      code: 'invalid_request',
      paths,
    });
  });
}

test('an id that is none is refused, never looked for', async () => {
  for (const id of ['1', 'x', '00000000-0000-0000-0000-00000000000g', `${'0'.repeat(36)}`]) {
    for (const [path, method] of [
      ['', 'GET'],
      ['', 'DELETE'],
      ['/content', 'GET'],
    ]) {
      const answer = app.request(`/documents/${id}${path}`, { method: method as string });
      assert.deepEqual(await refusal(answer), { status: 400, code: 'invalid_request', paths: ['documentId'] });
    }
  }
});

test('a raw upload without a project, or with a parameter that is not known, stores nothing', async () => {
  const before = await json(app.request('/documents?limit=500'));
  const answers: [query: string, paths: string[]][] = [
    ['filename=a.txt', ['projectId']],
    ['projectId=a%0Ab', ['projectId']],
    ['projectId=a&name=b', ['name']],
    ['projectId=a&filename=b%00.txt', ['filename']],
  ];
  for (const [query, paths] of answers) {
    assert.deepEqual(await refusal(raw(query, 'x')), { status: 400, code: 'invalid_request', paths });
  }
  const { status, code } = await problem(raw('projectId=a', 'x', { 'Content-Encoding': 'gzip' }));
  assert.deepEqual([status, code], [415, 'unsupported_content_encoding']);
  const mixed = await problem(raw('projectId=a', 'x', { 'Content-Type': 'multipart/mixed; boundary=B' }));
  assert.equal(mixed.status, 415);
  assert.deepEqual(await json(app.request('/documents?limit=500')), before);
});
