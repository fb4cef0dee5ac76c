import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { request } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { after, test } from 'node:test';
import { startServer } from '../../src/http/server.ts';
import { createLogger } from '../../src/log.ts';
import { until } from '../support/waiting.ts';
import { form, json, openAppBench, problem } from './bench.ts';
import { ownTemporaryFolder } from './temporary-folder.ts';

const temporary = ownTemporaryFolder();

const { appWith, config, sql } = await openAppBench(import.meta.url);
const lines: Record<string, unknown>[] = [];
const log = createLogger({ level: 'debug', write: (line) => lines.push(JSON.parse(line)) });
const app = appWith({ log, config: { ...config, maxDocumentBytes: 2_000_000 } });
const server = await startServer(app, { host: '127.0.0.1', port: 0 });
const { port } = server.address() as AddressInfo;
const url = `http://127.0.0.1:${port}`;
after(() => server.close());

async function documentsIn(projectId: string): Promise<number> {
  return (await json(fetch(`${url}/documents?projectId=${projectId}&limit=500`))).data.length;
}

const spools = () => readdir(temporary);

test('a hundred files arrive in one upload and are downloaded as they were', async () => {
  const files = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`${i}.pdf`, randomBytes(20_000 + i)]));
  const { data } = await json(fetch(`${url}/documents`, { method: 'POST', body: form('hundred', files) }), 201);
  assert.deepEqual(
    data.map(({ filename }: { filename: string }) => filename),
    Object.keys(files),
  );
  for (const { documentId, filename } of data.slice(0, 5)) {
    const content = await fetch(`${url}/documents/${documentId}/content`);
    assert.ok(files[filename]?.equals(Buffer.from(await content.arrayBuffer())));
  }
});

for (const path of ['/documents?projectId=large', '/tasks', '/nowhere']) {
  test(`a client that sends 100 MB to ${path} sees the refusal, not a broken connection`, async () => {
    const { answer, status } = await sendUntilAnswered(path, 100);
    assert.equal(status, path === '/nowhere' ? 404 : path === '/tasks' ? 415 : 413);
    assert.equal(JSON.parse(answer).status, status);
    assert.equal(await documentsIn('large'), 0);
  });
}

/** A chunked body, 1 MB a time, that goes on after the answer has begun to come in: until it is told or cut off. */
async function sendUntilAnswered(path: string, megabytes: number): Promise<{ status: number; answer: string }> {
  return await new Promise((resolve, reject) => {
    const outgoing = request(`${url}${path}`, { method: 'POST', agent: false }, (incoming) => {
      let answer = '';
      incoming.on('data', (chunk) => (answer += chunk));
      incoming.on('end', () => {
        outgoing.destroy();
        resolve({ status: incoming.statusCode ?? 0, answer });
      });
    });
    outgoing.on('error', reject);
    const send = (left: number): void => {
      if (left === 0) outgoing.end();
      else outgoing.write(Buffer.alloc(1_000_000), () => send(left - 1));
    };
    send(megabytes);
  });
}

const head = 'Host: x\r\nTransfer-Encoding: chunked\r\n';
const hangUps: [what: string, request: string][] = [
  ['a raw upload', `POST /documents?projectId=hung HTTP/1.1\r\n${head}\r\n5\r\nhello\r\n`],
  [
    'a multipart upload',
    `POST /documents HTTP/1.1\r\n${head}Content-Type: multipart/form-data; boundary=B\r\n\r\n` +
      '42\r\n--B\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n\r\n',
  ],
  ['a JSON body', `POST /tasks HTTP/1.1\r\n${head}Content-Type: application/json\r\n\r\n5\r\n{"a":\r\n`],
];
for (const [what, begun] of hangUps) {
  for (const how of ['closes', 'resets'] as const) {
    test(`a client that ${how} the connection in the middle of ${what} leaves nothing and disturbs nobody`, async () => {
      lines.length = 0;
      const socket = connect(port, '127.0.0.1');
      await new Promise<void>((resolve) => socket.write(begun, () => resolve()));
      // The server has begun to read: it counts its open requests.
      await until('the request is being read', async () => (await connections()) > 0);
      if (how === 'closes') socket.destroy();
      else socket.resetAndDestroy();
      const line = await until('the request is over', () => lines.find(({ message }) => message === 'request'));
      assert.equal(line.status, 400);
      assert.deepEqual(
        lines.filter(({ level }) => level === 'error'),
        [],
      );
      assert.equal(await documentsIn('hung'), 0);
      assert.deepEqual(await spools(), []);
    });
  }
}

function connections(): Promise<number> {
  return new Promise((resolve, reject) => {
    server.getConnections((error, count) => (error ? reject(error) : resolve(count)));
  });
}

test('no transaction is open while a slow client is sending', async () => {
  const outgoing = request(`${url}/documents?projectId=slow&filename=a.txt`, { method: 'POST' });
  const answered = new Promise<number>((resolve) => {
    outgoing.on('response', (incoming) => {
      incoming.resume();
      resolve(incoming.statusCode ?? 0);
    });
  });
  await new Promise<void>((resolve) => void outgoing.write('first half, ', () => resolve()));
  const open = await sql`
    select state, query
    from pg_stat_activity
    where datname = current_database()
      and pid <> pg_backend_pid()
      and xact_start is not null`;
  assert.deepEqual([...open], []);
  outgoing.end('second half');
  assert.equal(await answered, 201);
});

test('a request without a valid URL or Host is told so', async () => {
  for (const line of ['GET /documents HTTP/1.1\r\nHost: a b', 'GET /documents\\x HTTP/1.1\r\nHost: x']) {
    const socket = connect(port, '127.0.0.1');
    socket.end(`${line}\r\nConnection: close\r\n\r\n`);
    let answer = '';
    for await (const chunk of socket) answer += chunk;
    assert.match(answer, /^HTTP\/1\.1 400 .*application\/problem\+json.*malformed_url/s);
  }
});

test('HEAD answers as GET does, without a body', async () => {
  const answer = await fetch(`${url}/healthz`, { method: 'HEAD' });
  assert.deepEqual([answer.status, await answer.text()], [200, '']);
  const lost = await fetch(`${url}/documents/x`, { method: 'HEAD' });
  assert.equal(lost.status, 400);
  assert.equal((await problem(fetch(`${url}/documents/x`))).status, 400);
});
