import { setTimeout as sleep } from 'node:timers/promises';
import { type Bench, type Entrant, inTurn, isSlow, startEntrant, untilDone, warmUp } from '../bench.ts';
import type { Client } from '../contenders/contender.ts';
import { median, milliseconds, percentile } from '../numbers.ts';
import type { Target } from '../report.ts';
import type { Workers } from '../worker.ts';
import type { Measure } from './measure.ts';

/** A small task, as somebody sends who looks at the screen for the answer. */
const ITEMS = 10;

type Delays = { startMs: number[]; closeMs: number[] };

/**
 * How long a small task waits: from the submit's call to the start of its first item, and from its last durable result to the
 * task that is closed. The workers are idle before each, for a time that varies, so that who polls is met anywhere between polls.
 */
export const latency: Measure = {
  name: 'latency',
  async take(bench) {
    const delays = await inTurn(
      bench.form.rounds,
      bench.entrants,
      (entrant) => measureDelays(bench, entrant),
      ({ contender }) => contender.name,
    );
    const rows: string[][] = [];
    const targets: Target[] = [];
    for (const [{ contender }, of] of delays) {
      const start = of.flatMap(({ startMs }) => startMs);
      const close = of.flatMap(({ closeMs }) => closeMs);
      const cells = [median(start), percentile(start, 95), median(close), percentile(close, 95)];
      rows.push([contender.name, String(start.length), ...cells.map(milliseconds)]);
      if (contender.form !== 'ours') continue;
      targets.push(target(`submit to first start, ${contender.name}`, median(start), 20));
      targets.push(target(`last result to closed task, ${contender.name}`, median(close), 150));
    }
    const columns = ['contender', 'tasks', 'submit to first start', 'p95', 'last result to closed task', 'p95'];
    return { tables: [{ title: `Tasks of ${ITEMS} items, workers idle before`, columns, rows }], targets };
  },
};

function target(what: string, measured: number, wanted: number): Target {
  return {
    what: `${what}, median`,
    wanted: `<= ${wanted} ms`,
    measured: milliseconds(measured),
    met: measured <= wanted,
  };
}

async function measureDelays(bench: Bench, entrant: Entrant): Promise<Delays> {
  const workers = await startEntrant(entrant, { slots: 32, waitMs: 0 });
  const delays: Delays = { startMs: [], closeMs: [] };
  try {
    await warmUp(bench, entrant, workers, isSlow(entrant));
    for (let i = 0; i < (bench.form.name === 'full' ? 30 : 6); i++) {
      await sleep(100 + Math.random() * 500);
      await measureOne(entrant.client, workers, delays);
    }
  } finally {
    await workers.stop();
  }
  return delays;
}

async function measureOne(client: Client, workers: Workers, delays: Delays): Promise<void> {
  const submit = await client.stage(ITEMS);
  await workers.reset();
  const calledAt = process.hrtime.bigint();
  const startedAt = performance.now();
  const taskId = await submit();
  await untilDone(client, taskId, ITEMS, startedAt);
  const doneAt = performance.now();
  if (client.isClosed !== undefined) {
    while (!(await client.isClosed(taskId))) await sleep(2);
    delays.closeMs.push(performance.now() - doneAt);
  }
  const first = await workers.firstStart();
  if (first !== undefined) delays.startMs.push(Number(first - calledAt) / 1e6);
}
