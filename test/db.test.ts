import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, inTransaction, isDatabaseAway } from '../src/db.ts';
import { openTestDatabase } from './support/database.ts';
import { until } from './support/waiting.ts';

const { sql, url } = await openTestDatabase(import.meta.url);

test('a backend that dies in a transaction fails that transaction alone; the pool goes on', async () => {
  const pool = connect(url, { max: 2, applicationName: 'dying' });
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
    const pool = connect(url, { max: 1, applicationName: 'newborn' });
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
