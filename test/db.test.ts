import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, inTransaction, isDatabaseAway } from '../src/db.ts';
import { openTestDatabase } from './support/database.ts';
import { freezableProxy } from './support/proxy.ts';
import { until } from './support/waiting.ts';

const { sql, url } = await openTestDatabase(import.meta.url);

test('a backend that dies in a transaction fails that transaction alone; the pool goes on', async () => {
  const pool = connect(url, { max: 2, applicationName: 'dying', silenceMs: 30_000 });
  try {
    for (let round = 0; round < 20; round++) {
      const dying = inTransaction(pool, async (tx) => {
        const [me] = await tx<{ pid: number }[]>`select pg_backend_pid() as pid`;
        await sql`select pg_terminate_backend(${me?.pid ?? 0})`;
        // In half of the rounds the connection is known to be dead before the next statement, in half it is not.
        if (round % 2 === 0) {
          await until('the end of the backend', async () => {
            return (await sql`select 1 from pg_stat_activity where pid = ${me?.pid ?? 0}`).length === 0;
          });
        }
        await tx`select 1`;
      });
      await assert.rejects(dying, (error) => isDatabaseAway(error));
      // The next statement may still meet the dead connection; then it fails as its own, and the one after it finds another.
      const alive = async () =>
        pool`select 1`.then(
          () => true,
          (error: unknown) => !isDatabaseAway(error),
        );
      await until('a living connection', alive);
    }
  } finally {
    await pool.end({ timeout: 1 });
  }
});

test('connections that die while they are being made fail their statement and nothing else', async () => {
  let killing = true;
  const killer = (async () => {
    while (killing) {
      await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name = 'newborn'`;
    }
  })();
  let failed = 0;
  for (let round = 0; round < 50; round++) {
    const pool = connect(url, { max: 1, applicationName: 'newborn', silenceMs: 30_000 });
    const error: unknown = await pool`select 1`.then(
      () => undefined,
      (fault: unknown) => fault,
    );
    if (error !== undefined) failed += 1;
    assert.ok(error === undefined || isDatabaseAway(error), String(error));
    await pool.end({ timeout: 0 });
  }
  killing = false;
  await killer;
  assert.ok(failed > 0, 'no connection was killed in time');
});

test('a connection that falls silent is given up in time, and its statement fails as one whose database is away', async () => {
  const { proxyUrl, freeze, close } = await freezableProxy(url);
  const pool = connect(proxyUrl, { max: 1, applicationName: 'silent', silenceMs: 300 });
  try {
    await pool`select 1`;
    freeze(true);
    await assert.rejects(
      async () => pool`select 2`,
      (error) => isDatabaseAway(error),
    );
    freeze(false);
    await until('the pool goes on', async () => (await pool`select 3`).length === 1);
  } finally {
    await pool.end({ timeout: 0 });
    close();
  }
});

test('an idle connection may be silent: the next statement opens another without delay', async () => {
  const pool = connect(url, { max: 3, applicationName: 'idle', silenceMs: 50 });
  const open = async () =>
    (await sql`select 1 from pg_stat_activity where application_name = 'idle' and datname = current_database()`).length;
  try {
    await Promise.all([1, 2, 3].map(() => pool`select pg_sleep(0.01)`));
    await until('all idle connections are gone', async () => (await open()) === 0);
    const startedAt = performance.now();
    await pool`select 1`;
    assert.ok(performance.now() - startedAt < 500);
  } finally {
    await pool.end({ timeout: 0 });
  }
});
