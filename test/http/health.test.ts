import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { connect } from '../../src/db.ts';
import { checkReadiness } from '../../src/http/readiness.ts';
import { json, openAppBench, problem } from './bench.ts';

const { app, appWith, sql } = await openAppBench(import.meta.url);

async function unready(): Promise<string[]> {
  const { status, code, paths, headers } = await problem(app.request('/readyz'));
  assert.deepEqual([status, code, headers.get('retry-after')], [503, 'not_ready', '5']);
  return paths;
}

test('a process on a current schema is ready', async () => {
  assert.deepEqual(await json(app.request('/readyz')), { status: 'ready' });
  assert.deepEqual(await json(app.request('/healthz')), { status: 'ok' });
});

test('a migration that is missing makes it unready; one that is not known does not', async () => {
  const [last] = await sql`
    delete from asl_schema.schema_migrations
    where version = (select max(version) from asl_schema.schema_migrations)
    returning version`;
  assert.deepEqual(await unready(), ['schema']);
  await sql`insert into asl_schema.schema_migrations (version) values (${last?.version}), ('99990101000000')`;
  assert.deepEqual(await json(app.request('/readyz')), { status: 'ready' });
});

test('a queue of another version makes it unready, an older and a newer one', async () => {
  await sql`update pgboss.version set version = version - 1`;
  assert.deepEqual(await unready(), ['queue']);
  await sql`update pgboss.version set version = version + 2`;
  assert.deepEqual(await unready(), ['queue']);
  await sql`update pgboss.version set version = version - 1`;
  assert.deepEqual(await json(app.request('/readyz')), { status: 'ready' });
});

test('a database without our tables is told as such', async () => {
  await sql`alter table asl_schema.schema_migrations rename to elsewhere`;
  await sql`alter table pgboss.version rename to elsewhere`;
  assert.deepEqual(await unready(), ['schema', 'queue']);
  await sql`alter table asl_schema.elsewhere rename to schema_migrations`;
  await sql`alter table pgboss.elsewhere rename to version`;
  assert.deepEqual(await json(app.request('/readyz')), { status: 'ready' });
});

test('a database that refuses, or accepts and says nothing, makes it unready in bounded time', async () => {
  const refusing = connect('postgres://nobody@127.0.0.1:1/none', { max: 1, applicationName: 'refused' });
  assert.deepEqual(await checkReadiness(refusing, 5000), [{ path: 'database', message: 'is not reachable' }]);
  await refusing.end();
  const mute = createServer(() => {});
  await new Promise<void>((resolve) => void mute.listen(0, '127.0.0.1', resolve));
  const { port } = mute.address() as { port: number };
  const waiting = connect(`postgres://nobody@127.0.0.1:${port}/none`, { max: 1, applicationName: 'mute' });
  const told = await checkReadiness(waiting, 50);
  assert.deepEqual(told, [{ path: 'database', message: 'did not answer within 50 ms' }]);
  await waiting.end({ timeout: 0 });
  mute.close();
});

test('a process that drains gets no more traffic, and lives', async () => {
  const draining = appWith({ isReady: () => false });
  const { status, paths } = await problem(draining.request('/readyz'));
  assert.deepEqual([status, paths], [503, ['process']]);
  assert.deepEqual(await json(draining.request('/healthz')), { status: 'ok' });
  assert.deepEqual(await json(appWith({ isReady: () => true }).request('/readyz')), { status: 'ready' });
});
