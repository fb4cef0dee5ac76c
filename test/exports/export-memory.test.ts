import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { openTestDatabase } from '../support/database.ts';
import { until } from '../support/waiting.ts';
import type { Usage } from './export-process.ts';
import { fillTask } from './filled-task.ts';

const RESULTS = 20_000;
const RESULT_BYTES = 16_000;
const MB = 1_000_000;

const { sql, url } = await openTestDatabase(import.meta.url);
const child = fork(fileURLToPath(new URL('./export-process.ts', import.meta.url)), {
  // Node 24 lets its young generation grow to some 100 MB before it looks for garbage, whatever runs. Held at the size that
  // earlier ones have, so that what is measured is the export.
  execArgv: ['--import', 'tsx', '--max-semi-space-size=16'],
  env: { ...process.env, DATABASE_URL: url },
});
after(() => child.kill('SIGKILL'));
const [port] = (await once(child, 'message')) as [number];

async function usage(): Promise<Usage> {
  child.send('usage?');
  const [answer] = (await once(child, 'message')) as [Usage];
  return answer;
}

async function open(taskId: string, format: string): Promise<IncomingMessage> {
  const path = `/tasks/${taskId}/results?format=${format}`;
  const [answer] = (await once(get({ port, path, agent: false }), 'response')) as [IncomingMessage];
  assert.equal(answer.statusCode, 200);
  return answer;
}

test('320 MB of results go to a slow client in memory that does not grow with them', async (context) => {
  const warm = await fillTask(sql, 500, RESULT_BYTES);
  for await (const _ of await open(warm, 'ndjson'));
  const taskId = await fillTask(sql, RESULTS, RESULT_BYTES);
  const before = await usage();

  const startedAt = performance.now();
  const answer = await open(taskId, 'ndjson');
  // Takes nothing for a while: the process must wait, not read on.
  let asked = -1;
  await until('the export waits for its client', async () => {
    const last = asked;
    asked = (await usage()).statements;
    await sleep(100);
    return asked === last;
  });
  assert.ok(
    asked - before.statements < 200,
    `${asked - before.statements} pages of 1,177 for a client that takes none`,
  );

  let bytes = 0;
  let lines = 0;
  let pauseAt = 20 * MB;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, at + 1)) lines += 1;
    if (bytes < pauseAt) continue;
    pauseAt += 20 * MB;
    await sleep(20);
  }
  const seconds = (performance.now() - startedAt) / 1000;
  const { rssBytes } = await usage();
  assert.ok(answer.complete);
  assert.equal(lines, RESULTS);
  assert.ok(bytes > RESULTS * RESULT_BYTES);
  const grownMb = Math.round((rssBytes - before.rssBytes) / MB);
  context.diagnostic(`${Math.round(bytes / MB)} MB in ${seconds.toFixed(1)} s; resident memory grew by ${grownMb} MB`);
  assert.ok(grownMb < 150, `resident memory grew by ${grownMb} MB`);
});
