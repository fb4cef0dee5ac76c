import { type Bench, type Entrant, inTurn, isSlow, type Run, runItems, startEntrant, warmUp } from '../bench.ts';
import { median, megabytes, milliseconds, round } from '../numbers.ts';
import type { Table, Target } from '../report.ts';
import type { Findings, Measure } from './measure.ts';

const ITEMS = 10_000;

/** Items that do nothing: what is left is what each contender costs. */
export const noOp: Measure = {
  name: 'no-op',
  async take(bench) {
    const findings = await takeAt(bench, 32);
    if (bench.form.name === 'short') return findings;
    const wide = await takeAt(bench, 200);
    return { tables: [...findings.tables, ...wide.tables], targets: findings.targets ?? [] };
  },
};

async function takeAt(bench: Bench, slots: number): Promise<Findings> {
  const runs = await inTurn(
    bench.form.rounds,
    bench.entrants,
    async (entrant) => {
      const workers = await startEntrant(entrant, { slots, waitMs: 0 });
      try {
        const perSecond = await warmUp(bench, entrant, workers, isSlow(entrant));
        return await runItems(bench, entrant, workers, itemsFor(bench, perSecond));
      } finally {
        await workers.stop();
      }
    },
    ({ contender }) => contender.name,
  );
  const rates = new Map([...runs].map(([entrant, of]) => [entrant, median(of.map(ratePerSecond))]));
  return { tables: [toTable(runs, rates, slots)], targets: toTargets(rates) };
}

/** All of it in the full form; in the short one, no more of a slow contender than it does in some seconds. */
function itemsFor(bench: Bench, perSecond: number): number {
  const seconds = bench.form.name === 'full' ? 60 : 12;
  const affordable = Math.round((perSecond * seconds) / 100) * 100;
  return Math.min(ITEMS, Math.max(200, affordable));
}

function ratePerSecond({ items, totalMs }: Run): number {
  return items / (totalMs / 1000);
}

function toTable(runs: Map<Entrant, Run[]>, rates: Map<Entrant, number>, slots: number): Table {
  const best = Math.max(...[...rates].filter(([e]) => e.contender.name === 'Sheaf, scatter').map(([, rate]) => rate));
  return {
    title: `Items that do nothing: one process, ${slots} slots, submitted in one call, to the last durable result`,
    columns: [
      'contender',
      'items',
      'items/s',
      'Sheaf, scatter is',
      'without the submit, items/s',
      'CPU of the process for 10,000',
      'of the server',
      'memory of the process',
      'of the server',
    ],
    rows: [...runs].map(([entrant, of]) => {
      const per10k = (ms: (run: Run) => number) => median(of.map((run) => (ms(run) / run.items) * 10_000));
      const rate = rates.get(entrant) ?? Number.NaN;
      return [
        entrant.contender.name,
        String(median(of.map(({ items }) => items))),
        round(rate),
        Number.isFinite(best) ? `${round(best / rate)} ×` : '-',
        round(median(of.map(({ items, totalMs, submitMs }) => items / ((totalMs - submitMs) / 1000)))),
        milliseconds(per10k((run) => run.workerCpuMs)),
        milliseconds(per10k((run) => run.serverCpuMs)),
        megabytes(median(of.map((run) => run.workerMemoryBytes))),
        megabytes(median(of.map((run) => run.serverMemoryBytes))),
      ];
    }),
  };
}

/** Each of our modes against each of the others. Redis keeps its jobs less durably: it is shown, and no target. */
function toTargets(rates: Map<Entrant, number>): Target[] {
  const all = [...rates];
  return all
    .filter(([{ contender }]) => contender.form === 'ours')
    .flatMap(([{ contender: us }, own]) =>
      all
        .filter(([{ contender }]) => contender.form !== 'ours' && !contender.needsRedis)
        .map(([{ contender: other }, rate]) => {
          const wanted = other.form === 'plain' ? 5 : 1.2;
          const ratio = own / rate;
          const what = `no-op items/s, ${us.name} against ${other.name}`;
          return { what, wanted: `>= ${wanted} ×`, measured: `${round(ratio)} ×`, met: ratio >= wanted };
        }),
    );
}
