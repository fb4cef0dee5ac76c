import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect as tcp } from 'node:net';
import { after, beforeEach, mock, test } from 'node:test';
import { connect } from '../../src/db.ts';
import { startServer } from '../../src/http/server.ts';
import { createLogger } from '../../src/log.ts';
import { deleteTask } from '../../src/tasks/delete-task.ts';
import { fillTask } from '../exports/filled-task.ts';
import { until, untilBlocked } from '../support/waiting.ts';
import { openAppBench } from './bench.ts';

const { appWith, sql, url } = await openAppBench(import.meta.url);
const lines: Record<string, unknown>[] = [];
const log = createLogger({ level: 'info', write: (line) => lines.push(JSON.parse(line)) });
let statements = 0;
const applicationName = 'export-server';
const pool = connect(url, { max: 4, applicationName, onStatement: () => statements++ });
const server = await startServer(appWith({ log, sql: pool }), { host: '127.0.0.1', port: 0 });
const { port } = server.address() as AddressInfo;
after(async () => {
  server.closeAllConnections();
  server.close();
  await pool.end({ timeout: 1 });
});
// What the server's adapter prints by itself about a broken answer would be no JSON line.
const printed = mock.method(console, 'error', () => {});

const taskId = await fillTask(sql, 3000, 16_000);
const pathOf = (format: string) => `/tasks/${taskId}/results?format=${format}`;

beforeEach(() => {
  lines.length = 0;
  printed.mock.resetCalls();
});

/** Begins an export and takes what has come first; nothing more is read then. */
async function begin(path: string): Promise<IncomingMessage> {
  const [answer] = (await once(get({ port, path, agent: false }), 'response')) as [IncomingMessage];
  assert.equal(answer.statusCode, 200);
  await once(answer, 'readable');
  answer.read(1);
  return answer;
}

function connections(): Promise<number> {
  return new Promise((resolve, reject) => {
    server.getConnections((error, count) => (error ? reject(error) : resolve(count)));
  });
}

/** Waits until the server asks the database nothing any more; answers how many statements there have been. */
async function untilQuiet(): Promise<number> {
  let last = -1;
  let since = Date.now();
  return await until('no more statements', () => {
    if (statements !== last) since = Date.now();
    last = statements;
    return Date.now() - since > 200 && last;
  });
}

async function atWork(): Promise<number> {
  const rows = await sql`
    select 1
    from pg_stat_activity
    where datname = current_database() and application_name = ${applicationName} and state <> 'idle'`;
  return rows.length;
}

test('no page is read for a client that does not take the one before, and nothing is held open meanwhile', async () => {
  statements = 0;
  const answer = await begin(pathOf('ndjson'));
  // What the buffers of the network take, and far from all of the 180 pages.
  const pages = await untilQuiet();
  assert.ok(pages > 2 && pages < 120, String(pages));
  assert.equal(await atWork(), 0);
  let bytes = 1;
  for await (const chunk of answer) bytes += chunk.length;
  assert.ok(answer.complete && bytes > 3000 * 16_000);
  assert.ok(statements >= 180, String(statements));
});

for (const how of ['closes', 'resets'] as const) {
  test(`a client that ${how} the connection ends its export: no statement follows, and nobody is disturbed`, async () => {
    const answer = await begin(pathOf('ndjson'));
    if (how === 'closes') answer.destroy();
    else answer.socket.resetAndDestroy();
    await until('the connection is gone', async () => (await connections()) === 0);
    const asked = await untilQuiet();
    assert.equal(await atWork(), 0);
    const [other] = await once(get({ port, path: `/tasks/${taskId}/status`, agent: false }), 'response');
    other.resume();
    assert.equal(other.statusCode, 200);
    // The status' own two: its counts, and what was used.
    assert.equal(statements, asked + 2);
    assert.deepEqual(
      lines.filter(({ level }) => level !== 'info'),
      [],
    );
    assert.equal(printed.mock.callCount(), 0);
  });
}

test('a client that leaves while its page is being read gets no further one', async () => {
  let answer: IncomingMessage | undefined;
  await sql.begin(async (tx) => {
    await tx`lock table asl_schema.extraction_result in access exclusive mode`;
    statements = 0;
    [answer] = (await once(get({ port, path: pathOf('csv'), agent: false }), 'response')) as [IncomingMessage];
    await untilBlocked(sql, 'recursive page');
    answer.destroy();
    await until('the connection is gone', async () => (await connections()) === 0);
  });
  // The task, its template, and the one page.
  assert.equal(await untilQuiet(), 3);
  assert.equal(await atWork(), 0);
  assert.deepEqual(
    lines.filter(({ level }) => level !== 'info'),
    [],
  );
});

const faults: [what: string, doIt: () => Promise<unknown>, undo?: () => Promise<unknown>][] = [
  [
    'an error of the database',
    () => sql`alter table asl_schema.extraction_result rename to hidden`,
    () => sql`alter table asl_schema.hidden rename to extraction_result`,
  ],
  ['a delete of the task', () => deleteTask(sql, taskId)],
];
for (const [what, doIt, undo] of faults) {
  test(`${what} in the middle breaks the connection off, so that a short file does not pass for a whole one`, async () => {
    const client = tcp(port, '127.0.0.1');
    client.write(`GET ${pathOf('ndjson')} HTTP/1.1\r\nHost: x\r\n\r\n`);
    await once(client, 'readable');
    client.read(1);
    await untilQuiet();
    await doIt();
    let text = '';
    client.on('data', (chunk) => (text += chunk.toString('latin1')));
    client.on('error', () => {});
    await once(client, 'close');
    await undo?.();
    assert.match(text, /\r\ntransfer-encoding: chunked\r\n/i);
    assert.ok(text.length > 100_000 && text.length < 3000 * 16_000);
    assert.ok(!text.endsWith('0\r\n\r\n'), 'the body is not ended');
    assert.ok(!text.slice(-2000).includes('Error'), 'nothing of ours is told');
    const told = lines.filter(({ level }) => level === 'error');
    assert.equal(told.length, 1);
    assert.deepEqual([told[0]?.message, told[0]?.taskId, told[0]?.format], ['export broken off', taskId, 'ndjson']);
    assert.equal(printed.mock.callCount(), 0);
  });
}
