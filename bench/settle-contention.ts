import { fork } from 'node:child_process';
import { once } from 'node:events';
import { arch, cpus, platform } from 'node:os';
import { fileURLToPath } from 'node:url';
import { requireDatabaseUrl, runScript } from '../scripts/cli.ts';
import { migrateDatabase } from '../scripts/migrate.ts';
import { connect } from '../src/db.ts';
import { createLogger } from '../src/log.ts';
import { MODES } from '../src/modes.ts';
import { startQueue } from '../src/queue.ts';
import { settleResult } from '../src/tasks/settle-result.ts';
import type { Settlement } from '../src/tasks/settlement.ts';
import type { TaskModeName } from '../src/tasks/task.ts';
import { createSettler } from '../src/workers/settler.ts';
import { makeExpandedTask } from '../test/support/fanout.ts';
import { limits, makeTask, type TestBench, takeResults } from '../test/support/fixtures.ts';

/*
 * What it costs that the settles of one fan-out task meet at its counter: settles a second of one task, with so many children
 * ending at once, over one and over four processes, each with ten connections, in either mode, one by one and in groups.
 */

const CHILDREN = [1, 10, 100];
const PROCESSES = [1, 4];
const WAYS = ['one by one', 'in groups'] as const;
const ROUNDS = 3;
const log = createLogger({ level: 'error', write: () => {} });

type Way = (typeof WAYS)[number];
type Order = { settlements: Settlement[]; mode: TaskModeName; way: Way; atOnce: number };

/** In a process of its own: settles what it is sent, so many at a time, and says when it is done. */
async function settleOrders(databaseUrl: string): Promise<void> {
  const sql = connect(databaseUrl, { max: 10, applicationName: 'bench-settle' });
  const boss = await startQueue({ databaseUrl, supervise: false, log });
  // Every connection is open before the clock runs.
  await Promise.all(Array.from({ length: 10 }, () => sql`select pg_sleep(0.05)`));
  process.on('message', async ({ settlements, mode, way, atOnce }: Order) => {
    const grouped = createSettler({ sql, boss, limits, mode: MODES[mode] });
    const settle =
      way === 'in groups' ? grouped : (one: Settlement) => settleResult(sql, boss, one, limits, MODES[mode]);
    let next = 0;
    const slot = async (): Promise<void> => {
      for (let one = settlements[next++]; one !== undefined; one = settlements[next++]) await settle(one);
    };
    await Promise.all(Array.from({ length: atOnce }, slot));
    process.send?.('done');
  });
  process.send?.('ready');
}

async function measure(): Promise<number> {
  const databaseUrl = new URL(requireDatabaseUrl());
  databaseUrl.pathname = '/sheaf_bench_settle';
  await migrateDatabase(databaseUrl.href);
  const sql = connect(databaseUrl.href, { max: 4, applicationName: 'bench' });
  const boss = await startQueue({ databaseUrl: databaseUrl.href, supervise: false, log });
  const bench: TestBench = { sql, boss, url: databaseUrl.href, name: 'sheaf_bench_settle' };
  const children = await Promise.all(
    Array.from({ length: Math.max(...PROCESSES) }, async () => {
      const child = fork(fileURLToPath(import.meta.url), [databaseUrl.href], { execArgv: process.execArgv });
      await once(child, 'message');
      return child;
    }),
  );
  try {
    const [{ version } = { version: '' }] = await sql<{ version: string }[]>`
      select current_setting('server_version') as version`;
    say(
      `Node ${process.version}, PostgreSQL ${version}, ${cpus().length} × ${cpus()[0]?.model}, ${platform()} ${arch()}\n`,
    );
    say('Settles a second at one task, median of three rounds:\n');
    say(
      `| processes | children at once | ${(['scatter', 'fanout'] as const).flatMap((mode) => WAYS.map((way) => `${mode}, ${way}`)).join(' | ')} |`,
    );
    say('|---:|---:|---:|---:|---:|---:|');
    for (const processes of PROCESSES) {
      for (const atOnce of CHILDREN.filter((count) => count >= processes)) {
        const rates = new Map<string, number[]>();
        for (let round = 0; round < ROUNDS; round++) {
          for (const mode of ['scatter', 'fanout'] as const) {
            for (const way of WAYS) {
              const rate = await run(bench, children.slice(0, processes), { mode, way, atOnce: atOnce / processes });
              rates.set(`${mode} ${way}`, [...(rates.get(`${mode} ${way}`) ?? []), rate]);
            }
          }
        }
        const medians = [...rates.values()].map((all) => Math.round(all.sort((a, b) => a - b)[1] ?? 0));
        say(`| ${processes} | ${atOnce} | ${medians.join(' | ')} |`);
      }
    }
  } finally {
    for (const child of children) child.kill();
    await boss.stop({ graceful: false });
    await sql`drop schema asl_schema cascade`;
    await sql`drop schema pgboss cascade`;
    await sql.end();
  }
  return 0;
}

type Child = ReturnType<typeof fork>;

/** Settles all results of a new task, and answers how many a second. */
async function run(bench: TestBench, children: Child[], how: Omit<Order, 'settlements'>): Promise<number> {
  const { mode, atOnce } = how;
  const count = Math.min(3000, 300 * atOnce * children.length);
  const benchOfMode = { ...bench, mode: MODES[mode] };
  if (mode === 'scatter') await makeTask(benchOfMode, count);
  else await makeExpandedTask(benchOfMode, count);
  const held = await takeResults(benchOfMode, count);
  const settlements = held.map(({ claim: { taskId, resultId, attempt }, job }): Settlement => {
    return { taskId, resultId, attempt, job, ending: { kind: 'completed', data: { title: { value: 'A paper' } } } };
  });
  await bench.sql`checkpoint`;
  const startedAt = performance.now();
  await Promise.all(
    children.map(async (child, i) => {
      const part = settlements.filter((_, n) => n % children.length === i);
      child.send({ ...how, settlements: part });
      await once(child, 'message');
    }),
  );
  return count / ((performance.now() - startedAt) / 1000);
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

const [childUrl] = process.argv.slice(2);
if (childUrl !== undefined) await settleOrders(childUrl);
else await runScript(measure);
