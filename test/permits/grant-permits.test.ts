import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { fillStage, findStagesToFill } from '../../src/permits/grant-permits.ts';
import { findGranted, renewPermits } from '../../src/permits/permit-store.ts';
import { readStages, setStage } from '../../src/permits/stage-store.ts';
import { openTestDatabase } from '../support/database.ts';
import { until, untilBlocked } from '../support/waiting.ts';
import { OTHER_TASK, readQueue, release, request, resetStage, TASK } from './stage-queue.ts';

const { sql } = await openTestDatabase(import.meta.url);
beforeEach(async () => {
  await resetStage(sql, 'llm', 2);
  await resetStage(sql, 'parse', 2);
});

test('of 50 requests at once exactly as many are let in as there are permits, and the other stage is left alone', async () => {
  await setStage(sql, 'llm', { permits: 5 });
  const control = await request(sql, 'parse');
  const tickets = await Promise.all(Array.from({ length: 50 }, () => request(sql, 'llm')));
  const { inside, waiting } = await readQueue(sql, 'llm');
  assert.equal(inside.length, 5);
  assert.deepEqual([...inside, ...waiting].sort(), tickets.sort());
  // All at once again, and every place that becomes free is taken.
  await Promise.all(inside.map((id) => release(sql, 'llm', id)));
  const after = await readQueue(sql, 'llm');
  assert.deepEqual(after, { inside: waiting.slice(0, 5), waiting: waiting.slice(5) });
  assert.deepEqual(await readQueue(sql, 'parse'), { inside: [control], waiting: [] });
});

test('who came first is let in first, whichever process it waits in', async () => {
  const tickets: string[] = [];
  for (const holder of ['one', 'two', 'three', 'one', 'three', 'two']) {
    tickets.push(await request(sql, 'llm', { holder }));
  }
  const [a = '', b = '', ...rest] = tickets;
  assert.deepEqual(await readQueue(sql, 'llm'), { inside: [a, b], waiting: rest });
  assert.deepEqual(await release(sql, 'llm', b), [rest[0]]);
  assert.deepEqual(await release(sql, 'llm', a), [rest[1]]);
  assert.deepEqual(await release(sql, 'llm', a), [], 'a ticket that is gone makes no room');
});

test('a task of a few papers is not starved by one of many', async () => {
  const many: string[] = [];
  for (let i = 0; i < 8; i++) many.push(await request(sql, 'llm', { taskId: TASK }));
  const few = [await request(sql, 'llm', { taskId: OTHER_TASK }), await request(sql, 'llm', { taskId: OTHER_TASK })];
  // The other task has nobody inside, so it is next although it came last; then the two take turns.
  assert.deepEqual(await release(sql, 'llm', many[0] ?? ''), [few[0]]);
  assert.deepEqual(await release(sql, 'llm', many[1] ?? ''), [many[2]]);
  assert.deepEqual(await release(sql, 'llm', few[0] ?? ''), [few[1]]);
  // Several at once follow the same rule: two more of each would be inside, then the rest in the order of arrival.
  const more = [await request(sql, 'llm', { taskId: OTHER_TASK }), await request(sql, 'llm', { taskId: OTHER_TASK })];
  await setStage(sql, 'llm', { permits: 5 });
  const { inside } = await readQueue(sql, 'llm');
  assert.deepEqual(inside, [many[2], many[3], many[4], few[1], more[0]]);
});

test('a limit is raised and lowered at run time; lowering throws nobody out and lets nobody in', async () => {
  const tickets: string[] = [];
  for (let i = 0; i < 6; i++) tickets.push(await request(sql, 'llm'));
  await setStage(sql, 'llm', { permits: 4 });
  assert.deepEqual((await readQueue(sql, 'llm')).inside, tickets.slice(0, 4));
  // By plain SQL, as an operator may.
  await sql`update asl_schema.stage set permits = 2 where stage = 'llm'`;
  assert.deepEqual((await readQueue(sql, 'llm')).inside, tickets.slice(0, 4));
  assert.deepEqual(await release(sql, 'llm', tickets[0] ?? ''), []);
  assert.deepEqual(await release(sql, 'llm', tickets[1] ?? ''), []);
  assert.deepEqual(await release(sql, 'llm', tickets[2] ?? ''), [tickets[4]]);
  await setStage(sql, 'llm', { permits: 0 });
  assert.deepEqual(await release(sql, 'llm', tickets[3] ?? ''), []);
  assert.deepEqual(await findStagesToFill(sql, ['llm', 'parse']), []);
  await sql`update asl_schema.stage set permits = 3 where stage = 'llm'`;
  assert.deepEqual(await findStagesToFill(sql, ['llm', 'parse']), ['llm']);
  assert.deepEqual(await fillStage(sql, 'llm'), [tickets[5]]);
  assert.deepEqual(await findGranted(sql, tickets), [tickets[4], tickets[5]]);
});

test('impossible limits are refused by name', async () => {
  await assert.rejects(setStage(sql, 'llm', { permits: -1 }), { constraint_name: 'stage_permits_check' });
  await assert.rejects(setStage(sql, 'llm', { requestsPerMinute: 0 }), {
    constraint_name: 'stage_requests_per_minute_check',
  });
});

test('the ticket of a process that died counts until it expires, and no longer', async () => {
  const [dead = '', alive = '', next = '', gone = ''] = [
    await request(sql, 'llm', { holder: 'dead' }),
    await request(sql, 'llm'),
    await request(sql, 'llm'),
    await request(sql, 'llm', { holder: 'dead' }),
  ];
  const age = async (seconds: number): Promise<void> => {
    await sql`
      update asl_schema.permit
      set expires_at = clock_timestamp() + make_interval(secs => ${seconds})
      where holder = 'dead'`;
  };
  await age(1);
  assert.deepEqual(await findStagesToFill(sql, ['llm']), []);
  assert.deepEqual(await fillStage(sql, 'llm'), []);
  await age(0);
  assert.deepEqual(await findStagesToFill(sql, ['llm']), ['llm']);
  assert.deepEqual(await fillStage(sql, 'llm'), [next]);
  assert.deepEqual(await readQueue(sql, 'llm'), { inside: [alive, next], waiting: [] });
  // Its process is told, should it live after all.
  const states = await renewPermits(sql, { ticketIds: [dead, alive, gone], ttlMs: 15_000 });
  assert.deepEqual(states, new Map([[alive, 'granted']]));
});

test('a renewal in progress keeps its ticket from being taken for expired', async () => {
  const [held = '', dead = '', next = '', last = ''] = [
    await request(sql, 'llm'),
    await request(sql, 'llm'),
    await request(sql, 'llm'),
    await request(sql, 'llm'),
  ];
  await sql`update asl_schema.permit set expires_at = clock_timestamp() + interval '200 ms' where id = ${held}`;
  await sql`update asl_schema.permit set expires_at = clock_timestamp() where id = ${dead}`;
  await sql.begin(async (tx) => {
    const states = await renewPermits(tx, { ticketIds: [held], ttlMs: 15_000 });
    assert.deepEqual(states, new Map([[held, 'granted']]));
    // To everyone else it looks expired, until the renewal commits.
    await until('the old expiry is past', async () => {
      const [row] = await sql`select from asl_schema.permit where id = ${held} and expires_at < clock_timestamp()`;
      return row !== undefined;
    });
    assert.deepEqual(await fillStage(sql, 'llm'), [next], 'only for the one that has expired');
  });
  assert.deepEqual(await readQueue(sql, 'llm'), { inside: [held, next], waiting: [last] });
});

test('a renewal that comes while its ticket is being expired finds it gone', async () => {
  const ticketId = await request(sql, 'llm');
  const { promise: go, resolve } = Promise.withResolvers<void>();
  const { promise: deleted, resolve: onDeleted } = Promise.withResolvers<void>();
  const expiring = sql.begin(async (tx) => {
    await tx`delete from asl_schema.permit where id = ${ticketId}`;
    onDeleted();
    await go;
  });
  await deleted;
  const renewing = renewPermits(sql, { ticketIds: [ticketId], ttlMs: 15_000 });
  await untilBlocked(sql, 'asl_schema.permit');
  resolve();
  await expiring;
  assert.deepEqual(await renewing, new Map());
});

test('the stages are read at one instant', async () => {
  await setStage(sql, 'llm', { permits: 1, requestsPerMinute: 100, tokensPerMinute: 5000 });
  const first = await request(sql, 'llm');
  await request(sql, 'llm');
  await release(sql, 'llm', first, { kind: 'success' }, 1200);
  await request(sql, 'llm');
  const idle = {
    requestsPerMinute: null,
    tokensPerMinute: null,
    requestsUsed: 0,
    tokensUsed: 0,
    granted: 0,
    waiting: 0,
  };
  assert.deepEqual(await readStages(sql), [
    { stage: 'parse', permits: 2, ...idle, pause: null, failures: 0, circuit: 'closed' },
    {
      stage: 'llm',
      permits: 1,
      requestsPerMinute: 100,
      tokensPerMinute: 5000,
      requestsUsed: 2,
      tokensUsed: 1200,
      granted: 1,
      waiting: 1,
      pause: null,
      failures: 0,
      circuit: 'closed',
    },
  ]);
});
