import assert from 'node:assert/strict';
import { test } from 'node:test';
import { announceTasks } from '../../src/events/announce.ts';
import { createPublisher } from '../../src/events/publisher.ts';
import { client } from '../support/client.ts';
import { type EventStream, openStream } from '../support/event-stream.ts';
import { makeDocuments, makeTask, openTestBench, silent, TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';
import { startProcess } from '../support/process.ts';
import { until } from '../support/waiting.ts';

const bench = await openTestBench(import.meta.url);
const { sql, url: databaseUrl } = bench;
// Speaks as a worker does, from a process of its own.
const publisher = createPublisher({ sql, log: silent });

const attempts = (stream: EventStream) => stream.of('result').map(({ data }) => data.attempt);

test('what one process says reaches the clients of all others, who move on to another when theirs stops, and miss nothing', async () => {
  const [one, two] = await Promise.all([
    startProcess(databaseUrl, { ROLES: 'api' }),
    startProcess(databaseUrl, { ROLES: 'api' }),
  ]);
  const { taskId, resultIds } = await makeTask(bench, 2);
  const [resultId = ''] = resultIds;
  const path = `/tasks/${taskId}/events`;
  const say = (attempt: number): void =>
    publisher.publish({ type: 'result', taskId, resultId, status: 'pending', attempt });

  const [first, second] = await Promise.all([openStream(one.url + path), openStream(two.url + path)]);
  await Promise.all([first.untilEvent('snapshot'), second.untilEvent('snapshot')]);
  say(1);
  say(2);
  await Promise.all([first.untilEvent('result', 2), second.untilEvent('result', 2)]);
  assert.equal(first.of('result')[1]?.id, second.of('result')[1]?.id, 'the same place in both processes');
  assert.deepEqual(first.of('result')[0]?.data, { resultId, status: 'pending', attempt: 1 });

  // At once, though its streams would go on for hours and it may take 20 s to stop.
  const stoppedAtMs = performance.now();
  assert.equal(await one.stop(), 0);
  assert.ok(performance.now() - stoppedAtMs < 5000);
  await until('the end of its streams', () => first.ended());
  say(3);
  await second.untilEvent('result', 3);

  const resumed = await openStream(two.url + path, { 'Last-Event-ID': first.lastEventId() });
  assert.equal((await resumed.untilEvent('snapshot')).data.resumed, true);
  say(4);
  await resumed.untilEvent('result', 2);
  assert.deepEqual(attempts(resumed), [3, 4]);

  await sql`
    update asl_schema.extraction_task set status = 'cancelled', status_reason = 'cancelled_by_user', completed_at = now()
    where id = ${taskId}`;
  await announceTasks(sql, [taskId]);
  const end = await resumed.untilEvent('end');
  assert.equal(end.data.status, 'cancelled');
  await until('the ends', () => resumed.ended() && second.ended());
  const after = await fetch(two.url + path, { headers: { 'Last-Event-ID': end.id } });
  assert.equal(after.status, 204);
  assert.equal(await two.stop(), 0);
});

test('a task at work in other processes is seen from its first result to its end, each step once and in order', async () => {
  const api = await startProcess(databaseUrl, { ROLES: 'api' });
  const documentIds = await makeDocuments(sql, 'watched', 30);
  const taskId = await client(api.url).createTask('watched', TRIAL_TEMPLATE_ID, documentIds);
  const stream = await openStream(`${api.url}/tasks/${taskId}/events`);
  const { data: first } = await stream.untilEvent('snapshot');
  assert.equal(first.progress.pending, 30);
  // Nobody works before somebody watches.
  const workers = await Promise.all(['worker', 'aggregator'].map((ROLES) => startProcess(databaseUrl, { ROLES })));

  const end = await stream.untilEvent('end');
  assert.deepEqual([end.data.status, end.data.progress.success], ['completed', 30]);
  const steps = Map.groupBy(stream.of('result'), ({ data }) => data.resultId);
  assert.equal(steps.size, 30);
  for (const [resultId, told] of steps) {
    assert.deepEqual(
      told.map(({ data }) => [data.status, data.attempt]),
      [
        ['extracting', 1],
        ['completed', 1],
      ],
      resultId,
    );
  }
  const percents = stream.of('progress').map(({ data }) => data.progress.percent);
  assert.deepEqual(
    percents,
    percents.toSorted((a, b) => a - b),
  );
  assert.equal(percents.at(-1), 100);
  assert.equal(stream.events.at(-1)?.event, 'end');
  for (const service of [...workers, api]) assert.equal(await service.stop(), 0);
});
