import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, type Sql } from '../../src/db.ts';
import { type ResultSelection, resultPages } from '../../src/exports/result-pages.ts';
import { listResults } from '../../src/tasks/read-tasks.ts';
import type { TaskResult } from '../../src/tasks/task.ts';
import { makeTask, openTestBench } from '../support/fixtures.ts';
import { addResults, fillTask } from './filled-task.ts';

const bench = await openTestBench(import.meta.url);
const { sql, url } = bench;

const pagesOf = (from: Sql, selection: ResultSelection) => resultPages(from, selection, (page) => page);

async function collect(pages: AsyncIterable<readonly TaskResult[]>): Promise<(readonly TaskResult[])[]> {
  const all: (readonly TaskResult[])[] = [];
  for await (const page of pages) all.push(page);
  return all;
}

test('pages together are the list of results, each once and in its order', async () => {
  const { taskId } = await makeTask(bench, 450);
  await makeTask(bench, 3);
  const pages = await collect(pagesOf(sql, { taskId }));
  assert.deepEqual(
    pages.map((page) => page.length),
    [200, 200, 50],
  );
  assert.deepEqual(pages.flat(), [...(await listResults(sql, { taskId, limit: 500 }))]);
});

test('pages of one status are the list of that status', async () => {
  const { taskId, resultIds } = await makeTask(bench, 450);
  const failed = resultIds.filter((_, i) => i % 2 === 1);
  await sql`
    update asl_schema.extraction_result
    set status = 'error', error_code = 'x', error_message = 'y', finished_at = now()
    where task_id = ${taskId} and id = any(${failed}::uuid[])`;
  const pages = await collect(pagesOf(sql, { taskId, status: 'error' }));
  assert.deepEqual(pages.flat(), [...(await listResults(sql, { taskId, status: 'error', limit: 500 }))]);
  assert.deepEqual(await collect(pagesOf(sql, { taskId, status: 'completed' })), []);
});

test('a page is bounded by what its results weigh, however well they compress and wherever the heavy ones stand', async () => {
  const taskId = await fillTask(sql, 100, 16_000);
  await addResults(sql, taskId, { from: 101, count: 5, bytes: 3_000_000 });
  await addResults(sql, taskId, { from: 106, count: 300, bytes: 10 });
  const pages = await collect(pagesOf(sql, { taskId }));
  assert.equal(pages.flat().length, 405);
  const [first, ...rest] = pages.map((page) => page.length);
  assert.equal(first, 17);
  // The last of the light ones before a heavy one may share its page; the heavy ones never share one with each other.
  assert.deepEqual(rest, [17, 17, 17, 17, 16, 1, 1, 1, 1, 200, 100]);
});

test('a task without results has no pages, and a task that is deleted in between is no short one', async () => {
  const empty = await fillTask(sql, 0, 0);
  assert.deepEqual(await collect(pagesOf(sql, { taskId: empty })), []);
  const taskId = await fillTask(sql, 201, 10);
  const pages = pagesOf(sql, { taskId });
  assert.equal((await pages.next()).value?.length, 200);
  await sql`delete from asl_schema.extraction_task where id = ${taskId}`;
  await assert.rejects(pages.next(), /the task was deleted/);
});

test('one statement a page, and nothing is read ahead', async () => {
  const statements: string[] = [];
  const counted = connect(url, { max: 1, applicationName: 'counted', onStatement: (text) => statements.push(text) });
  const taskId = await fillTask(sql, 401, 10);
  const pages = pagesOf(counted, { taskId });
  for (let i = 1; i <= 3; i++) {
    await pages.next();
    assert.equal(statements.filter((text) => text.includes('recursive page')).length, i);
  }
  await pages.return();
  assert.equal(statements.filter((text) => text.includes('recursive page')).length, 3);
  await counted.end();
});
