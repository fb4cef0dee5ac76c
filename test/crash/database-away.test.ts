import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PgBoss } from 'pg-boss';
import { migrateDatabase } from '../../scripts/migrate.ts';
import { connect, type Sql } from '../../src/db.ts';
import { startQueue } from '../../src/queue.ts';
import { makeTask, silent } from '../support/fixtures.ts';
import { ownServer } from '../support/postgres-server.ts';
import { freezableProxy } from '../support/proxy.ts';
import { until } from '../support/waiting.ts';
import { breaches, installAudit, isAtRest } from './audit.ts';
import { type CrashProcess, killAll, startCrashProcess } from './process.ts';

const server = await ownServer();
await server.start();
const databaseUrl = new URL('/sheaf', server.url).href;
await migrateDatabase(databaseUrl);
// What the test itself looks with must come back as well.
const sql: Sql = connect(databaseUrl, { max: 3, applicationName: 'sheaf-test' });
await installAudit(sql);
const boss: PgBoss = await startQueue({ databaseUrl, supervise: false, log: silent });
const proxy = await freezableProxy(databaseUrl);
after(async () => {
  killAll();
  await boss.stop({ graceful: false });
  await sql.end({ timeout: 1 });
  proxy.close();
  await server.remove();
});

const PAPERS = 80;
let processes: CrashProcess[] = [];
let taskId = '';

/** Two processes at work, one of them by a network that can be cut; a paper takes a moment, so work is always under way. */
beforeEach(async () => {
  const env = { ENGINE: 'wait:300', WORKER_SLOTS: '5', DATABASE_SILENCE_SECONDS: '3' };
  const urls = [databaseUrl, proxy.proxyUrl];
  processes = await Promise.all(urls.map((url) => startCrashProcess(url, { env })));
  taskId = (await makeTask({ sql, boss, url: databaseUrl, name: 'sheaf' }, PAPERS)).taskId;
  await working();
});

afterEach(async () => {
  for (const process of processes) process.signal('SIGTERM');
  const ends = await Promise.all(processes.map(({ ended }) => ended));
  assert.deepEqual(ends, [0, 0], 'the very same processes were there to the end');
});

/** Every process has begun something since now. */
async function working(): Promise<void> {
  const before = processes.map(({ runs }) => runs.length);
  await until('work in every process', () => processes.every(({ runs }, i) => runs.length > (before[i] ?? 0)), 60_000);
}

/** The answer to a request, or nothing if it was not there in time. */
const ask = (process: CrashProcess, path: string) => fetch(process.url + path, { signal: AbortSignal.timeout(20_000) });

/** Asks until the API says that it is away: each answer comes, and is a good one or 503 with a time to come back. */
async function saysAway(process: CrashProcess): Promise<void> {
  await until(
    'a 503',
    async () => {
      const answer = await ask(process, `/tasks/${taskId}/status`);
      await answer.arrayBuffer();
      if (answer.status === 200) return false;
      assert.deepEqual([answer.status, answer.headers.get('retry-after')], [503, '5']);
      assert.equal((await ask(process, '/readyz')).status, 503);
      assert.equal((await ask(process, '/healthz')).status, 200);
      return true;
    },
    60_000,
  );
}

async function everythingDone(): Promise<void> {
  await until(
    'the task closed',
    async () => {
      const seen = await Promise.all(
        processes.map(async (process) => {
          const answer = await ask(process, `/tasks/${taskId}/status`);
          return (await answer.json()) as { status: unknown; progress?: { success: number } };
        }),
      );
      return seen.every(({ status, progress }) => status === 'completed' && progress?.success === PAPERS);
    },
    120_000,
  );
  await until('rest', () => isAtRest(sql), 60_000);
  assert.deepEqual(await breaches(sql), []);
}

test('PostgreSQL crashes in mid-work and comes back: the API says 503 meanwhile, and the same processes lose nothing', async () => {
  await server.stop('immediate');
  await Promise.all(processes.map(saysAway));
  await server.start();
  await everythingDone();
});

test('backends die one by one under load: the same processes lose nothing', async (t) => {
  let killed = 0;
  const isOpen = async () =>
    (await sql`select 1 from asl_schema.extraction_task where id = ${taskId} and status = 'processing'`).length > 0;
  while (killed < 60 && (await isOpen())) {
    const [row] = await sql<{ done: number }[]>`
      select count(pg_terminate_backend(pid))::int as done
      from (
        select pid from pg_stat_activity
        where application_name in ('sheaf', 'sheaf-queue') and pid <> pg_backend_pid()
        order by random() limit 1
      ) one`;
    killed += row?.done ?? 0;
    await sleep(100);
  }
  t.diagnostic(`${killed} backends ended`);
  assert.ok(killed >= 10);
  await everythingDone();
});

test('connections fall silent: the process behind them says 503 in bounded time, the other goes on, and nothing is lost', async () => {
  const [well, cut] = processes as [CrashProcess, CrashProcess];
  proxy.freeze(true);
  await saysAway(cut);
  assert.equal((await ask(well, `/tasks/${taskId}/status`)).status, 200);
  proxy.freeze(false);
  await everythingDone();
});

test('processes that are told to stop while PostgreSQL is away hand back their work when it returns, and spend no attempt', async () => {
  await server.stop('immediate');
  for (const process of processes) process.signal('SIGTERM');
  await until('they heed it', () => processes.every((process) => process.log().includes('"stopping"')), 30_000);
  await server.start();
  assert.deepEqual(await Promise.all(processes.map(({ ended }) => ended)), [0, 0], processes[0]?.log().slice(-2000));
  const [left] = await sql`
    select sum(failed_attempts)::int as failed, count(*) filter (where status = 'extracting')::int as extracting
    from asl_schema.extraction_result where task_id = ${taskId}`;
  assert.deepEqual(left, { failed: 0, extracting: 0 });
});
