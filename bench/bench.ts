import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../src/db.ts';
import type { Client, ClientSettings, Contender } from './contenders/contender.ts';
import { CONTENDERS } from './contenders/index.ts';
import { type RedisServer, startRedis } from './contenders/redis-server.ts';
import { createDatabase, dropDatabase } from './database.ts';
import type { Form } from './form.ts';
import { sayProgress } from './report.ts';
import { findServer, type ServerUsage, serverUsage } from './server-usage.ts';
import { startWorkers, type Workers } from './worker.ts';

/** A contender on a database of its own, ready for work. */
export type Entrant = { contender: Contender; settings: ClientSettings; client: Client };

/** What the measures share: the form, the contenders that can take part, and the server. */
export type Bench = {
  form: Form;
  /** The server's URL; each measure makes databases of its own beside. */
  serverUrl: string;
  entrants: readonly Entrant[];
  /** Why somebody does not take part. */
  absent: readonly string[];
  redisVersion: string | undefined;
  usage(entrant: Entrant): ServerUsage;
  close(): Promise<void>;
};

/** Prepares every contender that was asked for, each in a database of its own. */
export async function openBench(serverUrl: string, form: Form): Promise<Bench> {
  const wanted = CONTENDERS.filter(
    ({ name }) =>
      form.contenders.length === 0 || form.contenders.some((part) => name.toLowerCase().includes(part.toLowerCase())),
  );
  const redis = wanted.some(({ needsRedis }) => needsRedis) ? await startRedis() : undefined;
  const absent = typeof redis === 'string' ? [`BullMQ on Redis does not take part: ${redis}.`] : [];
  const server = typeof redis === 'string' ? undefined : redis;
  const sql = connect(serverUrl, { max: 1, applicationName: 'bench' });
  const pid = await findServer(sql);
  await sql.end();

  const entrants = await openEntrants(serverUrl, wanted, server?.url);
  return {
    form,
    serverUrl,
    entrants,
    absent,
    redisVersion: server?.version,
    usage: (entrant) => bothUsages(pid, entrant.contender.needsRedis ? server : undefined),
    async close() {
      await closeEntrants(entrants);
      await server?.stop();
    },
  };
}

/** Each in a database of its own; `suffix` tells it from the one that all measures share. */
export async function openEntrants(
  serverUrl: string,
  contenders: readonly Contender[],
  redisUrl: string | undefined,
  suffix = '',
): Promise<Entrant[]> {
  const entrants: Entrant[] = [];
  for (const contender of contenders) {
    if (contender.needsRedis && redisUrl === undefined) continue;
    const databaseUrl = await createDatabase(serverUrl, `${contender.name}${suffix}`);
    await contender.prepare(databaseUrl);
    const settings = { databaseUrl, redisUrl };
    entrants.push({ contender, settings, client: await contender.openClient(settings) });
  }
  return entrants;
}

export async function closeEntrants(entrants: readonly Entrant[]): Promise<void> {
  for (const { client, settings } of entrants) {
    await client.close();
    await dropDatabase(settings.databaseUrl);
  }
}

function bothUsages(pid: number | undefined, redis: RedisServer | undefined): ServerUsage {
  const postgres = serverUsage(pid);
  if (redis === undefined) return postgres;
  const own = serverUsage(redis.pid);
  return { cpuMs: postgres.cpuMs + own.cpuMs, memoryBytes: postgres.memoryBytes + own.memoryBytes };
}

export type WorkSettings = { slots: number; waitMs: number; processes?: number };

/** What PostgreSQL's default of 100 connections allows one process beside the bench's own. */
const MOST_CONNECTIONS = 80;

/** Starts a contender's processes, with a pool for all slots and two more, which graphile-worker's documentation asks for. */
export async function startEntrant({ contender, settings }: Entrant, options: WorkSettings): Promise<Workers> {
  const { slots, waitMs, processes = 1 } = options;
  const poolSize = Math.min(slots + 2, Math.floor(MOST_CONNECTIONS / processes));
  const plan = { contender: contender.name, waitMs, settings: { ...settings, slots, poolSize } };
  return await startWorkers(plan, processes);
}

export type Run = {
  items: number;
  /** From the call to its answer. */
  submitMs: number;
  /** From the call to the moment when the last result is durable. */
  totalMs: number;
  /** Of all worker processes together, and of the server, while that went on. */
  workerCpuMs: number;
  serverCpuMs: number;
  /** At the end of it. */
  workerMemoryBytes: number;
  serverMemoryBytes: number;
};

/** Submits `items` in one call to workers that are idle, and waits for the last result. */
export async function runItems(bench: Bench, entrant: Entrant, workers: Workers, items: number): Promise<Run> {
  const submit = await entrant.client.stage(items);
  const workersBefore = await workers.usage();
  const serverBefore = bench.usage(entrant);
  const startedAt = performance.now();
  const taskId = await submit();
  const submitMs = performance.now() - startedAt;
  await untilDone(entrant.client, taskId, items, startedAt);
  const totalMs = performance.now() - startedAt;
  const workersAfter = await workers.usage();
  const serverAfter = bench.usage(entrant);
  return {
    items,
    submitMs,
    totalMs,
    workerCpuMs: workersAfter.cpuMs - workersBefore.cpuMs,
    serverCpuMs: serverAfter.cpuMs - serverBefore.cpuMs,
    workerMemoryBytes: workersAfter.memoryBytes,
    serverMemoryBytes: serverAfter.memoryBytes,
  };
}

/** Nothing of a run takes as long without a single result. */
const STALL_MS = 60_000;

/**
 * Asks how many are done, the same way for all: first seldom, since a count costs the server something, and the nearer the end,
 * by the rate so far, the more often; the last questions are 5 ms apart.
 */
export async function untilDone(client: Client, taskId: string, items: number, startedAt: number): Promise<void> {
  let done = 0;
  let changedAt = performance.now();
  for (;;) {
    const now = await client.countDone(taskId);
    if (now === items) return;
    if (now > done) changedAt = performance.now();
    else if (performance.now() - changedAt > STALL_MS) throw new Error(`${now} of ${items} results, and then none`);
    done = now;
    const elapsedMs = performance.now() - startedAt;
    const leftMs = done === 0 ? elapsedMs : (elapsedMs * (items - done)) / done;
    await sleep(Math.min(1000, Math.max(5, leftMs / 2)));
  }
}

/** So many that its working code is compiled, by a fresh process, and in a second where it is slow. */
const WARM_UP_ITEMS = 3000;

/** A first run that does not count. Answers how many items a second it came to. */
export async function warmUp(bench: Bench, entrant: Entrant, workers: Workers, slow: boolean): Promise<number> {
  const run = await runItems(bench, entrant, workers, slow ? 64 : WARM_UP_ITEMS);
  return run.items / (run.totalMs / 1000);
}

/** Whether a contender needs a second for what others do in a hundredth of it: its runs have fewer items. */
export function isSlow({ contender }: Entrant): boolean {
  return contender.name === 'pg-boss, plain';
}

/**
 * Each contender in turn, and that as often as there are rounds: A B C A B C. So what the machine does beside meets all alike.
 */
export async function inTurn<T, R>(
  rounds: number,
  contenders: readonly T[],
  measure: (contender: T, round: number) => Promise<R>,
  nameOf: (contender: T) => string,
): Promise<Map<T, R[]>> {
  const results = new Map<T, R[]>(contenders.map((contender) => [contender, []]));
  for (let round = 0; round < rounds; round++) {
    for (const contender of contenders) {
      sayProgress(`round ${round + 1} of ${rounds}: ${nameOf(contender)}`);
      results.get(contender)?.push(await measure(contender, round));
    }
  }
  return results;
}
