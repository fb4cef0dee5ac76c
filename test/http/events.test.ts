import assert from 'node:assert/strict';
import { after, afterEach, test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { connect } from '../../src/db.ts';
import { announceTasks } from '../../src/events/announce.ts';
import { startHub } from '../../src/events/hub.ts';
import { watchedTaskReader } from '../../src/http/watched-task.ts';
import { EXTRACT_QUEUE } from '../../src/queue.ts';
import { makeTask, silent, takeResults } from '../support/fixtures.ts';
import { type Json, json, openAppBench, refusal } from './bench.ts';

const bench = await openAppBench(import.meta.url);
const { sql, boss, app: appWithoutHub, appWith } = bench;
const limits = { refreshMs: 20, lingerMs: 20, tendMs: 10 };
const read = watchedTaskReader(sql);
const hub = await startHub({ sql, read, log: silent, limits });
after(() => hub.close());
afterEach(async () => {
  await sql`delete from asl_schema.extraction_task`;
  await boss.deleteAllJobs(EXTRACT_QUEUE);
});
const app = appWith({ hub });

const pathOf = (taskId: string) => `/tasks/${taskId}/events`;
const close = (taskId: string) => sql`
  update asl_schema.extraction_task set status = 'completed', completed_at = now() where id = ${taskId}`;
const reopen = (taskId: string) => sql`
  update asl_schema.extraction_task set status = 'processing', completed_at = null where id = ${taskId}`;

/** Reads a stream to its end, or to so many events, and closes it then. */
async function take(response: Response, count = Number.POSITIVE_INFINITY) {
  assert.equal(response.status, 200);
  const events: { event: string; id: string | undefined; data: Json }[] = [];
  let text = '';
  const decoder = new TextDecoder();
  for await (const piece of response.body ?? []) {
    text += decoder.decode(piece, { stream: true });
    const blocks = text.split('\n\n');
    text = blocks.pop() ?? '';
    for (const block of blocks) {
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1];
      const data = field('data');
      if (data !== undefined) events.push({ event: field('event') ?? '', id: field('id'), data: JSON.parse(data) });
    }
    if (events.length >= count) break;
  }
  return events;
}

test('a stream says what it is, and that it is not for storing or buffering', async () => {
  const { taskId } = await makeTask(bench, 1);
  for (const method of ['GET', 'HEAD']) {
    const response = await app.request(pathOf(taskId), { method });
    assert.equal(response.status, 200);
    assert.deepEqual(Object.fromEntries(response.headers), {
      'content-type': 'text/event-stream',
      'cache-control': 'no-store',
      vary: 'Accept',
      'x-accel-buffering': 'no',
      connection: 'close',
    });
    if (method === 'HEAD') assert.equal(response.body, null);
    else await response.body?.cancel();
  }
});

test('it begins with the status as the status route has it, and with what is being extracted', async () => {
  const { taskId, resultIds } = await makeTask(bench, 5);
  const held = await takeResults(bench, 2);
  const [snapshot] = await take(await app.request(pathOf(taskId)), 1);
  const status = await json(app.request(`/tasks/${taskId}/status`));
  const rows = await sql`
    select id, filename, started_at from asl_schema.extraction_result where status = 'extracting' and task_id = ${taskId}
    order by id`;
  assert.equal(snapshot?.event, 'snapshot');
  assert.deepEqual(snapshot?.data, {
    ...status,
    resumed: false,
    extracting: rows.map(({ id, filename, started_at }) => {
      return { resultId: id, filename, attempt: 1, startedAt: started_at.toISOString() };
    }),
  });
  assert.deepEqual(held.map(({ claim }) => claim.resultId).sort(), rows.map(({ id }) => id).sort());
  assert.equal(resultIds.length, 5);
});

test('no more than two hundred of the results being extracted are named', async () => {
  const { taskId } = await makeTask(bench, 203);
  await takeResults(bench, 203);
  const [snapshot] = await take(await app.request(pathOf(taskId)), 1);
  assert.equal(snapshot?.data.progress.extracting, 203);
  assert.equal(snapshot?.data.extracting.length, 200);
});

test('a task that goes on and closes is told as progress and an end, and a client that comes back then is told to stop', async () => {
  const { taskId } = await makeTask(bench, 2);
  const response = await app.request(pathOf(taskId));
  const taking = take(response);
  await sql`
    update asl_schema.extraction_result
    set status = 'completed', extracted_data = '{}', attempt = 1, started_at = now(), finished_at = now() where task_id = ${taskId}`;
  await close(taskId);
  await announceTasks(sql, [taskId]);
  const events = await taking;
  const status = await json(app.request(`/tasks/${taskId}/status`));
  const { usage: _, paused: __, ...state } = status;
  assert.deepEqual(
    events.map(({ event }) => event),
    ['snapshot', 'progress', 'end'],
  );
  assert.deepEqual(events[1]?.data, state);
  assert.deepEqual(events[2]?.data, state);

  const headers = { 'Last-Event-ID': events[2]?.id ?? '' };
  const again = await app.request(pathOf(taskId), { headers });
  assert.deepEqual([again.status, again.body], [204, null]);
  assert.equal((await app.request(pathOf(taskId), { method: 'HEAD', headers })).status, 204);
  const newcomer = await take(await app.request(pathOf(taskId)));
  assert.deepEqual(
    newcomer.map(({ event }) => event),
    ['snapshot', 'end'],
  );
  assert.equal(newcomer[1]?.id?.split('~')[1], events[2]?.id?.split('~')[1]);

  await reopen(taskId);
  const [reopened] = await take(await app.request(pathOf(taskId), { headers }), 1);
  assert.deepEqual([reopened?.event, reopened?.data.status], ['snapshot', 'processing']);
  await close(taskId);
  const second = await take(await app.request(pathOf(taskId), { headers }));
  assert.equal(second.at(-1)?.event, 'end');
});

test('refusals: no such task, no id, a parameter that is not known, another method, another media type', async () => {
  const { taskId } = await makeTask(bench, 1);
  const unknown = uuidv7();
  assert.deepEqual(await refusal(app.request(pathOf(unknown))), { status: 404, code: 'task_not_found', paths: [] });
  assert.equal((await app.request(pathOf(unknown), { method: 'HEAD' })).status, 404);
  const malformed = { status: 400, code: 'invalid_request', paths: ['taskId'] };
  assert.deepEqual(await refusal(app.request(pathOf('7'))), malformed);
  const parameter = { status: 400, code: 'invalid_request', paths: ['since'] };
  assert.deepEqual(await refusal(app.request(`${pathOf(taskId)}?since=1`)), parameter);
  assert.equal((await refusal(app.request(pathOf(taskId), { method: 'POST' }))).status, 405);
  for (const Accept of ['application/json', 'text/html', '*/*;q=0', 'text/event-stream;q=0, */*']) {
    const response = await app.request(pathOf(taskId), { headers: { Accept } });
    assert.equal(response.headers.get('vary'), 'Accept');
    assert.deepEqual(await refusal(response), { status: 406, code: 'not_acceptable', paths: [] }, Accept);
  }
  for (const Accept of ['text/event-stream', 'text/*', 'application/json, */*;q=0.1']) {
    assert.equal((await take(await app.request(pathOf(taskId), { headers: { Accept } }), 1)).length, 1, Accept);
  }
  const upper = await take(await app.request(pathOf(taskId.toUpperCase())), 1);
  assert.equal(upper[0]?.data.taskId, taskId);
});

test('without a hub there is no such path', async () => {
  const { taskId } = await makeTask(bench, 1);
  assert.equal((await refusal(appWithoutHub.request(pathOf(taskId)))).status, 404);
});

test('with the database away the answer is the usual 503, and so it is when the process stops', async () => {
  const { taskId } = await makeTask(bench, 1);
  const nowhere = connect('postgres://nobody@127.0.0.1:1/nothing', { max: 1, applicationName: 'nowhere' });
  const broken = await startHub({ sql, read: watchedTaskReader(nowhere), log: silent, limits });
  const away = await refusal(appWith({ hub: broken }).request(pathOf(taskId)));
  assert.deepEqual([away.status, away.code], [503, 'database_unavailable']);
  broken.close();
  const stopping = await appWith({ hub: broken }).request(pathOf(taskId));
  assert.equal(stopping.headers.get('retry-after'), '1');
  assert.deepEqual(await refusal(stopping), { status: 503, code: 'stopping', paths: [] });
  await nowhere.end({ timeout: 0 });
});

test('a task that is closed between two reads of it is read again', async () => {
  const { taskId } = await makeTask(bench, 1);
  await close(taskId);
  let reopened = false;
  // As if it were opened again just after its status was read.
  const racing = new Proxy(sql, {
    apply(target, that, args) {
      const isSecond = args[0]?.[1]?.includes?.('from asl_schema.extraction_task') && !reopened;
      if (isSecond) reopened = true;
      return isSecond
        ? reopen(taskId).then(() => Reflect.apply(target, that, args))
        : Reflect.apply(target, that, args);
    },
  });
  const found = await watchedTaskReader(racing)(taskId, { details: false });
  assert.ok(reopened);
  assert.ok(found);
  assert.equal(found.closedAtMs, undefined);
  assert.equal((found.progress as Json).status, 'processing');
});
