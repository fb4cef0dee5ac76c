import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { isMain, requireDatabaseUrl, runScript } from '../../scripts/cli.ts';
import { migrateDatabase } from '../../scripts/migrate.ts';
import { connect } from '../../src/db.ts';
import { startQueue } from '../../src/queue.ts';
import { silent } from '../support/fixtures.ts';
import { breaches, installAudit, isAtRest } from './audit.ts';
import { type Chaos, create, doStep, fillSlot } from './chaos-faults.ts';
import { makePlan, stepOf } from './chaos-plan.ts';
import { printReport, wrongValues } from './chaos-report.ts';
import { killAll, QUICK } from './process.ts';

/** After the last fault, everything must be at rest within this time: a takeover, a lost transaction, a few retries. */
const REST_MS = 180_000;
const MAX_ATTEMPTS = 4;

/**
 * Random faults over several processes and tasks for CHAOS_SECONDS, then a rest, then a look at every invariant. The seed
 * decides what becomes of each attempt at each paper, and which fault comes when; CHAOS_SEED repeats a plan.
 */
async function run(): Promise<number> {
  const seconds = Number(process.env.CHAOS_SECONDS || 60);
  const seed = process.env.CHAOS_SEED || String(randomInt(1_000_000_000));
  process.stdout.write(`chaos for ${seconds} s: CHAOS_SEED=${seed}\n`);
  const url = new URL(requireDatabaseUrl());
  const name = `sheaf_chaos_${process.pid}_${Date.now().toString(36)}`;
  url.pathname = `/${name}`;
  await migrateDatabase(url.href);
  const sql = connect(url.href, { max: 5, applicationName: 'chaos' });
  await installAudit(sql, 10);
  await sql`
    create table audit.run (
      run text primary key, pid int, filename text, attempt int, at timestamptz not null default clock_timestamp()
    )`;
  const boss = await startQueue({ databaseUrl: url.href, supervise: false, log: silent });
  const chaos: Chaos = {
    ...{ sql, boss, databaseUrl: url.href, plan: makePlan(seed) },
    limits: { heartbeatSeconds: 10, jobExpirySeconds: 60, maxAttempts: MAX_ATTEMPTS },
    env: {
      ...QUICK,
      ...{
        ENGINE: 'chaos',
        CHAOS_SEED: seed,
        LOG_LEVEL: 'debug',
        WORKER_SLOTS: '5',
        MAX_ATTEMPTS: String(MAX_ATTEMPTS),
      },
      ...{ EXTRACTION_TIMEOUT_SECONDS: '3', JOB_EXPIRY_SECONDS: '60', SHUTDOWN_GRACE_SECONDS: '1' },
      ...{ STALE_AFTER_SECONDS: '90' },
    },
    slots: ['worker,aggregator', 'worker', 'worker,aggregator', 'worker'].map((roles) => ({
      ...{ roles, process: undefined, busy: false },
    })),
    ...{ hits: [], done: new Map(), processes: [], faults: [] },
  };
  try {
    await cause(chaos, seconds);
    const restMs = await rest(chaos);
    const found = [...chaos.faults, ...(await breaches(sql, MAX_ATTEMPTS)), ...(await wrongValues(chaos))];
    if (restMs === undefined) found.unshift(`no rest within ${REST_MS / 1000} s`);
    await printReport(chaos, restMs);
    if (found.length === 0) {
      process.stdout.write('every invariant held\n');
      await leave(chaos, url.href, name);
      return 0;
    }
    process.stdout.write(`\n${found.length} BREACHES. CHAOS_SEED=${seed}, database ${name} is kept\n`);
    for (const breach of found) process.stdout.write(`- ${breach}\n`);
    return 1;
  } finally {
    killAll();
  }
}

/** Does step after step until the time is over, and waits for what they have begun. */
async function cause(chaos: Chaos, seconds: number): Promise<void> {
  await Promise.all(chaos.slots.map((slot) => fillSlot(chaos, slot)));
  const until = Date.now() + seconds * 1000;
  for (const first of [-1, -2, -3, -4, -5, -6]) await create(chaos, first);
  const begun: Promise<void>[] = [];
  for (let step = 0; Date.now() < until; step++) {
    const { kind, waitMs } = stepOf(chaos.plan, step);
    begun.push(
      doStep(chaos, kind, step).catch((error: unknown) => void chaos.faults.push(`step ${step} (${kind}): ${error}`)),
    );
    await sleep(waitMs);
  }
  await Promise.all(begun);
}

/** Waits until nothing is open and no job is live; answers how long it took. */
async function rest({ sql }: Chaos): Promise<number | undefined> {
  const since = Date.now();
  while (Date.now() - since < REST_MS) {
    if (await isAtRest(sql)) return Date.now() - since;
    await sleep(200);
  }
  return undefined;
}

async function leave({ sql, boss }: Chaos, url: string, name: string): Promise<void> {
  killAll();
  await boss.stop({ graceful: false });
  await sql.end({ timeout: 5 });
  const admin = connect(new URL('/postgres', url).href, { max: 1, applicationName: 'chaos' });
  await admin`drop database ${admin(name)} with (force)`;
  await admin.end();
}

if (isMain(import.meta.url)) await runScript(run);
