import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { connect } from '../../src/db.ts';
import { FANOUT } from '../../src/fanout/fanout.ts';
import { CHILD_QUEUE, EXTRACT_QUEUE, insertJobs, MANAGER_QUEUE, SWEEPER_QUEUE } from '../../src/queue.ts';
import { settleResult } from '../../src/tasks/settle-result.ts';
import { makeExpandedTask, makeFanoutTask } from '../support/fanout.ts';
import { limits, openTestBench, takeResult } from '../support/fixtures.ts';

/*
 * What fan-out systems of this kind must have, and what they break of, and where each is tried here:
 *
 *   increments are atomic, none is lost                           count-children.test.ts
 *   the last child closes the task, by success and by failure     count-children.test.ts, "on every path"
 *   a claim is one conditional update, no read and then write     tasks/claim-results.test.ts, count-children.test.ts
 *   permanent errors stop, transient ones come again              tasks/settle-result.test.ts, workers/consumer.test.ts
 *   the result is released before it is tried again               count-children.test.ts
 *   limits hold over all processes, not in each                   permits/processes.test.ts, crash/fanout.test.ts
 *   payloads are ids; jobs expire; queue names have no dots       below
 *   a child is dispatched once, however often a manager runs      below, expand-task.test.ts, crash/kill-manager.test.ts
 *   a manager waits for no child                                  workers/manager.test.ts
 *   what children need is copied before they run                  expand-task.test.ts
 *   a task without documents closes                               expand-task.test.ts
 *   result, job and counter change in one transaction             count-children.test.ts
 *   that transaction does nothing else, and counts last           below
 *   a sweeper by the schedule, by last activity and never by age  sweep-fanout.test.ts
 *   live events cross processes                                   e2e/events.test.ts
 *   their texts are cut by bytes, and never part of a statement   events/
 */

const bench = { ...(await openTestBench(import.meta.url)), mode: FANOUT };
const { sql, boss, url } = bench;

beforeEach(async () => {
  await sql`delete from asl_schema.extraction_task`;
  for (const queue of [CHILD_QUEUE, MANAGER_QUEUE]) await boss.deleteAllJobs(queue);
});

test('every job holds ids only, has an expiry and a key of its own', async () => {
  await makeFanoutTask(bench, 3, { listed: true });
  await boss.deleteAllJobs(MANAGER_QUEUE);
  await makeExpandedTask(bench, 3);
  await makeFanoutTask(bench, 50, { listed: true });
  const jobs = await sql`
    select name, length(data::text) < 200 as small, expire_seconds as expiry, heartbeat_seconds as heartbeat,
      singleton_key is not null as keyed, count(*)::int as jobs
    from pgboss.job
    where name in (${CHILD_QUEUE}, ${MANAGER_QUEUE}) and state = 'created'
    group by 1, 2, 3, 4, 5
    order by 1`;
  const common = { small: true, heartbeat: 10, keyed: true };
  assert.deepEqual(
    [...jobs],
    [
      { name: CHILD_QUEUE, expiry: 1800, jobs: 3, ...common },
      { name: MANAGER_QUEUE, expiry: 3600, jobs: 1, ...common },
    ],
  );
  for (const name of [EXTRACT_QUEUE, CHILD_QUEUE, MANAGER_QUEUE, SWEEPER_QUEUE]) {
    assert.match(name, /^[a-z0-9_]+$/);
    assert.equal((await boss.getQueue(name))?.policy, 'exclusive');
  }
});

test('a second job of the same child is refused by the queue, and with it whatever would have made it', async () => {
  const { taskId, resultIds } = await makeExpandedTask(bench, 1);
  const twin = { taskId, resultId: resultIds[0] as string, jobId: uuidv7() };
  await assert.rejects(
    sql.begin((tx) => insertJobs(boss, tx, CHILD_QUEUE, [twin], limits)),
    /have a live twin in the queue/,
  );
});

test('a settle is one short transaction: the row, its job, and at the very end the counter', async () => {
  const { taskId } = await makeExpandedTask(bench, 2);
  const { claim, job } = await takeResult(bench);
  const statements: string[] = [];
  const watched = connect(url, { max: 1, applicationName: 'watched', onStatement: (text) => statements.push(text) });
  const ending = { kind: 'completed', data: {} } as const;
  assert.equal(await settleResult(watched, boss, { ...claim, job, ending }, limits, FANOUT), 'completed');
  await watched.end();
  const kinds = ['begin', 'with told as', 'pgboss', 'update asl_schema.fanout_tally', 'commit'];
  assert.deepEqual(
    statements
      .filter((text) => !text.includes('pg_catalog'))
      .map((text) => kinds.find((kind) => text.includes(kind)) ?? text),
    kinds,
  );
  const [tally] = await sql`select success_count from asl_schema.fanout_tally where task_id = ${taskId}`;
  assert.equal(tally?.success_count, 1);
});

test('the counters of a task are not on the task, and no settle but the last touches its row', async () => {
  const { taskId } = await makeExpandedTask(bench, 3);
  const version = async () =>
    (await sql<{ xmin: string }[]>`select xmin::text from asl_schema.extraction_task where id = ${taskId}`)[0]?.xmin;
  const before = await version();
  const versions = [];
  for (let i = 0; i < 3; i++) {
    const { claim, job } = await takeResult(bench);
    await settleResult(sql, boss, { ...claim, job, ending: { kind: 'completed', data: {} } }, limits, FANOUT);
    versions.push((await version()) === before);
  }
  assert.deepEqual(versions, [true, true, false]);
});
