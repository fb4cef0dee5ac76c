import assert from 'node:assert/strict';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { connect, type Sql } from '../../src/db.ts';
import { announceResults, announceTasks } from '../../src/events/announce.ts';
import { createBacklog } from '../../src/events/backlog.ts';
import { withLogEvents } from '../../src/events/log-events.ts';
import { readPayload } from '../../src/events/payload.ts';
import { createPublisher } from '../../src/events/publisher.ts';
import { EVENT_CHANNEL, type ResultEvent, type TaskEvent } from '../../src/events/task-event.ts';
import { createLogger } from '../../src/log.ts';
import { openTestDatabase } from '../support/database.ts';
import { silent } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';

const { sql, url } = await openTestDatabase(import.meta.url);
let heard: (TaskEvent | undefined)[] = [];
await sql.listen(EVENT_CHANNEL, (text) => heard.push(...(readPayload(text)?.events ?? [])));

const result = (taskId: string, attempt: number): ResultEvent => {
  return { type: 'result', taskId, resultId: taskId, status: 'completed', attempt };
};
const log = (taskId: string, message: string): TaskEvent => ({ type: 'log', taskId, level: 'info', message, at: 1 });
const of = (taskId: string) => heard.filter((event) => event?.taskId === taskId);

/** The same database, but away for as long as the test says. */
function flaky(): { sql: Sql; away: (error: object | undefined) => void; asked: () => number } {
  let error: object | undefined;
  let asked = 0;
  const asking = (...args: Parameters<Sql>) => {
    asked += 1;
    return error ? Promise.reject(Object.assign(new Error('away'), error)) : sql(...args);
  };
  return { sql: asking as unknown as Sql, away: (what) => (error = what), asked: () => asked };
}
const refused = { code: 'ECONNREFUSED' };

test('what is announced in a transaction is heard at its commit, and not at all when it is rolled back', async () => {
  const [first, second] = [uuidv7(), uuidv7()];
  await sql.begin(async (tx) => {
    await announceTasks(tx, [first]);
    await announceResults(tx, [result(first, 1)]);
    await announceTasks(sql, [second]);
    await until('the other word', () => of(second).length === 1);
    assert.deepEqual(of(first), []);
  });
  await until('both words', () => of(first).length === 2);
  assert.deepEqual(of(first), [{ type: 'task', taskId: first }, result(first, 1)]);
  const broken = sql.begin(async (tx) => {
    await announceTasks(tx, [first]);
    throw new Error('rolled back');
  });
  await assert.rejects(broken, /rolled back/);
  await announceTasks(sql, [second]);
  await until('a later word', () => of(second).length === 2);
  assert.equal(of(first).length, 2);
});

test('five thousand results are announced in one statement, and no tasks in none', async () => {
  let statements = 0;
  const counting = connect(url, { max: 1, applicationName: 'counting', onStatement: () => statements++ });
  await counting`select 1`;
  statements = 0;
  const taskId = uuidv7();
  await announceResults(
    counting,
    Array.from({ length: 5000 }, (_, i) => result(taskId, i)),
  );
  await announceTasks(counting, []);
  await counting.end();
  assert.equal(statements, 1);
  await until('all of them', () => of(taskId).length === 5000);
  assert.deepEqual(
    of(taskId),
    Array.from({ length: 5000 }, (_, i) => result(taskId, i)),
  );
});

test('an announcement far longer than PostgreSQL takes, in Chinese and with a NUL, does not fail the write it belongs to', async () => {
  const taskId = uuidv7();
  await assert.rejects(sql`select pg_notify(${EVENT_CHANNEL}, ${'文'.repeat(2700)})`, /payload string too long/);
  await sql.begin(async (tx) => {
    await tx`create table written (id int)`;
    await announceResults(tx, [{ ...result(taskId, 1), code: `\0\ud83d${'文'.repeat(50_000)}` }]);
  });
  assert.deepEqual([...(await sql`select * from written`)], []);
  await until('the word', () => of(taskId).length === 1);
  const [event] = of(taskId);
  assert.ok(event?.type === 'result');
  assert.match(event.code ?? '', /^\uFFFD\uFFFD文{50,70}…$/);
});

test('a thousand events at once are sent by few statements, one after the other and not too often, in their order', async () => {
  const sentAtMs: number[] = [];
  let running = 0;
  const watched = ((...args: Parameters<Sql>) => {
    sentAtMs.push(performance.now());
    assert.equal(++running, 1);
    return sql(...args).finally(() => running--);
  }) as unknown as Sql;
  const publisher = createPublisher({ sql: watched, log: silent, intervalMs: 50 });
  const taskId = uuidv7();
  const events = Array.from({ length: 3000 }, (_, i) => (i % 2 ? result(taskId, i) : log(taskId, String(i))));
  for (const event of events) publisher.publish(event);
  await until('all of them', () => of(taskId).length === 3000);
  assert.deepEqual(of(taskId), events);
  assert.ok(sentAtMs.length >= 2 && sentAtMs.length < 10, `${sentAtMs.length} statements`);
  for (let i = 1; i < sentAtMs.length; i++) assert.ok((sentAtMs[i] ?? 0) - (sentAtMs[i - 1] ?? 0) >= 49);
  await publisher.close();
});

test('with the database away events wait, and arrive once and in order when it is back', async () => {
  const lines: string[] = [];
  const warned = createLogger({ level: 'warn', write: (line) => lines.push(line) });
  const { sql: database, away, asked } = flaky();
  const publisher = createPublisher({ sql: database, log: warned, intervalMs: 10 });
  away(refused);
  const taskId = uuidv7();
  publisher.publish(result(taskId, 1));
  await until('two tries', () => asked() >= 2);
  publisher.publish(result(taskId, 2));
  away(undefined);
  await until('both', () => of(taskId).length === 2);
  assert.deepEqual(of(taskId), [result(taskId, 1), result(taskId, 2)]);
  assert.equal(lines.length, 1, 'told once');
  await publisher.close();
});

test('what the database refuses stands in no other event’s way', async () => {
  const { sql: database, away, asked } = flaky();
  const publisher = createPublisher({ sql: database, log: silent, intervalMs: 10 });
  away({ code: '54000' });
  const taskId = uuidv7();
  publisher.publish(result(taskId, 1));
  await until('a try', () => asked() === 1);
  away(undefined);
  publisher.publish(result(taskId, 2));
  await until('the second', () => of(taskId).length === 1);
  assert.deepEqual(of(taskId), [result(taskId, 2)]);
  await publisher.close();
});

test('closing sends what is there; with the database away it ends all the same, and later events go nowhere', async () => {
  const publisher = createPublisher({ sql, log: silent, intervalMs: 300 });
  const taskId = uuidv7();
  publisher.publish(result(taskId, 1));
  await until('the first', () => of(taskId).length === 1);
  publisher.publish(result(taskId, 2));
  await publisher.close();
  publisher.publish(result(taskId, 3));
  await until('the second', () => of(taskId).length === 2);

  const { sql: database, away, asked } = flaky();
  away(refused);
  const stranded = createPublisher({ sql: database, log: silent });
  stranded.publish(result(taskId, 4));
  await until('a try', () => asked() === 1);
  await stranded.close();
  const hanging = createPublisher({ sql: (() => new Promise(() => {})) as unknown as Sql, log: silent });
  hanging.publish(result(taskId, 5));
  await hanging.close();
  assert.equal(of(taskId).length, 2);
});

test('an event that cannot even be written is logged, not thrown', () => {
  const lines: string[] = [];
  const publisher = createPublisher({ sql, log: createLogger({ level: 'error', write: (line) => lines.push(line) }) });
  publisher.publish({ type: 'log', taskId: uuidv7(), level: 'info', message: undefined as unknown as string });
  assert.match(lines.join(), /could not be written/);
});

test('a full backlog drops the oldest log lines, then the oldest results, and remembers their tasks', () => {
  const events = (texts: string[]) => readPayload(`{"i":"abcdefgh","e":[${texts.join()}]}`)?.events ?? [];
  const [a, b, c] = [uuidv7(), uuidv7(), uuidv7()];
  const backlog = createBacklog(10_000);
  backlog.add(log(a, 'first'));
  backlog.add(result(b, 1));
  for (let i = 0; i < 200; i++) backlog.add(log(c, `line ${i}`));
  const kept = events(backlog.take(1_000_000));
  const count = (type: string, taskId: string) =>
    kept.filter((event) => event?.type === type && event.taskId === taskId).length;
  assert.equal(count('result', b), 1);
  assert.equal(count('log', a), 0);
  assert.ok(count('log', c) > 50 && count('log', c) < 150);
  const last = kept.findLast((event) => event?.type === 'log');
  assert.deepEqual(last, log(c, 'line 199'));
  assert.deepEqual(kept.slice(-2), [
    { type: 'task', taskId: a },
    { type: 'task', taskId: c },
  ]);
  assert.ok(backlog.isEmpty());

  for (let i = 0; i < 200; i++) backlog.add(result(b, i));
  assert.deepEqual(events(backlog.take(1)).length, 1, 'one at least');
  const rest = events(backlog.take(1_000_000));
  assert.deepEqual(rest.at(-2), result(b, 199));
  assert.deepEqual(rest.at(-1), { type: 'task', taskId: b });
  assert.ok(rest.length < 120);
});

test('a backlog of thirty thousand events, each of another task, stays small', () => {
  const backlog = createBacklog(10_000);
  for (let i = 0; i < 30_000; i++) backlog.add(log(`${i}`, 'x'.repeat(500)));
  let count = 0;
  let bytes = 0;
  while (!backlog.isEmpty()) {
    const texts = backlog.take(1_000_000);
    count += texts.length;
    bytes += texts.join('').length;
  }
  assert.ok(count <= 10_100 && bytes < 300_000, `${count} events, ${bytes} bytes`);
});

test('a line for people goes to the log and to whoever watches the task, with its code and error and no other field', () => {
  const lines: Record<string, unknown>[] = [];
  const events: TaskEvent[] = [];
  const bound = { taskId: 'a', resultId: 'b', attempt: 2 };
  const base = createLogger({ level: 'debug', write: (line) => lines.push(JSON.parse(line)) });
  const logger = withLogEvents(base.child(bound), bound, (event) => events.push(event));
  logger.debug('for developers');
  logger.info('begun', { ms: 7 });
  logger.warn('attempt failed', { code: 'llm_busy', error: 'llm_busy: try again' });
  logger.child({ more: 1 }).error('lost', { code: 'gone', error: 'x'.repeat(1000) });
  assert.deepEqual(
    lines.map(({ level, message, taskId, ms, more }) => ({ level, message, taskId, ms, more })),
    [
      { level: 'debug', message: 'for developers', taskId: 'a', ms: undefined, more: undefined },
      { level: 'info', message: 'begun', taskId: 'a', ms: 7, more: undefined },
      { level: 'warn', message: 'attempt failed', taskId: 'a', ms: undefined, more: undefined },
      { level: 'error', message: 'lost', taskId: 'a', ms: undefined, more: 1 },
    ],
  );
  const told = events.map((event) => (event.type === 'log' ? `${event.level} ${event.message}` : event.type));
  assert.deepEqual(told.slice(0, 2), ['info begun', 'warn attempt failed: llm_busy: try again']);
  assert.match(told[2] ?? '', /^error lost: gone: x{480,490}…$/);
  assert.deepEqual(
    events.map((event) => event.type === 'log' && [event.taskId, event.resultId, event.attempt, typeof event.at]),
    Array(3).fill(['a', 'b', 2, 'number']),
  );
});

test.afterEach(() => {
  heard = [];
});
