import { type Bench, type Entrant, inTurn, isSlow, type Run, runItems, startEntrant, warmUp } from '../bench.ts';
import { median, milliseconds, round } from '../numbers.ts';
import type { Table, Target } from '../report.ts';
import type { Findings, Measure } from './measure.ts';

/** How long an item takes, on how many slots; and the part of the ideal that is promised. */
type Load = { waitMs: number; slots: number; items: number; wanted: number; entrants: readonly Entrant[] };

/**
 * Items that wait, as a call to a parser or a model does: how much of what the slots could do at best is done. The ideal is
 * that every slot works all the time; it counts from the answer of the submit, and the time of the whole is beside it. The short
 * form takes ourselves alone.
 */
export const waiting: Measure = {
  name: 'waiting',
  async take(bench) {
    const full = bench.form.name === 'full';
    const ours = bench.entrants.filter(({ contender }) => contender.form === 'ours');
    const entrants = full ? bench.entrants : ours;
    const findings = [
      await takeLoad(bench, { waitMs: 25, slots: 32, items: 10_000, wanted: 0.9, entrants }),
      await takeLoad(bench, { waitMs: 100, slots: 50, items: full ? 10_000 : 2500, wanted: 0.97, entrants }),
    ];
    return {
      tables: findings.flatMap(({ tables }) => tables),
      targets: findings.flatMap(({ targets = [] }) => targets),
    };
  },
};

async function takeLoad(bench: Bench, load: Load): Promise<Findings> {
  const { waitMs, slots, entrants } = load;
  const runs = await inTurn(
    bench.form.rounds,
    entrants,
    async (entrant) => {
      const workers = await startEntrant(entrant, { slots, waitMs });
      try {
        await warmUp(bench, entrant, workers, isSlow(entrant));
        return await runItems(bench, entrant, workers, isSlow(entrant) ? Math.min(load.items, 1000) : load.items);
      } finally {
        await workers.stop();
      }
    },
    ({ contender }) => `${waitMs} ms: ${contender.name}`,
  );
  return { tables: [toTable(load, runs)], targets: toTargets(load, runs) };
}

function shareOfIdeal({ waitMs, slots }: Load, { items, totalMs, submitMs }: Run): number {
  return ((items / slots) * waitMs) / (totalMs - submitMs);
}

function toTable(load: Load, runs: Map<Entrant, Run[]>): Table {
  return {
    title: `Items that wait ${load.waitMs} ms: one process, ${load.slots} slots`,
    columns: ['contender', 'items', 'of the ideal', 'items/s', 'from the submit to the last durable result'],
    rows: [...runs].map(([{ contender }, of]) => [
      contender.name,
      String(of[0]?.items),
      `${round(100 * median(of.map((run) => shareOfIdeal(load, run))))} %`,
      round(median(of.map(({ items, totalMs, submitMs }) => items / ((totalMs - submitMs) / 1000)))),
      milliseconds(median(of.map(({ totalMs }) => totalMs))),
    ]),
  };
}

function toTargets(load: Load, runs: Map<Entrant, Run[]>): Target[] {
  return [...runs]
    .filter(([{ contender }]) => contender.form === 'ours')
    .map(([{ contender }, of]) => {
      const share = median(of.map((run) => shareOfIdeal(load, run)));
      const what = `items of ${load.waitMs} ms on ${load.slots} slots, ${contender.name}`;
      const wanted = `>= ${100 * load.wanted} % of the ideal`;
      return { what, wanted, measured: `${round(100 * share)} %`, met: share >= load.wanted };
    });
}
