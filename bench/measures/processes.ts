import { type Bench, type Entrant, inTurn, isSlow, runItems, startEntrant, warmUp } from '../bench.ts';
import { median, round } from '../numbers.ts';
import type { Target } from '../report.ts';
import type { Measure } from './measure.ts';

const PROCESSES = [1, 2, 4];
const SLOTS = 32;
const WAIT_MS = 25;

type Crew = { entrant: Entrant; processes: number };

/** Whether more processes do more, as long as their items wait for somebody else: items a second from the submit's answer. */
export const processes: Measure = {
  name: 'processes',
  async take(bench) {
    const full = bench.form.name === 'full';
    const entrants = bench.entrants.filter(({ contender }) => full || contender.form === 'ours');
    const crews = entrants.flatMap((entrant) => PROCESSES.map((count): Crew => ({ entrant, processes: count })));
    const rates = await inTurn(
      bench.form.rounds,
      crews,
      (crew) => measureRate(bench, crew),
      (crew) => `${crew.entrant.contender.name}, ${crew.processes} processes`,
    );
    const rate = (entrant: Entrant, count: number): number =>
      median([...rates].flatMap(([crew, of]) => (crew.entrant === entrant && crew.processes === count ? of : [])));
    return {
      tables: [
        {
          title: `Items that wait ${WAIT_MS} ms, ${SLOTS} slots in each process, items/s`,
          columns: [
            'contender',
            ...PROCESSES.map((count) => `${count} process${count > 1 ? 'es' : ''}`),
            '4 against 1',
          ],
          rows: entrants.map((entrant) => [
            entrant.contender.name,
            ...PROCESSES.map((count) => round(rate(entrant, count))),
            `${round(rate(entrant, 4) / rate(entrant, 1))} ×`,
          ]),
        },
      ],
      targets: entrants.flatMap((entrant): Target[] => {
        if (entrant.contender.form !== 'ours') return [];
        const ratio = rate(entrant, 4) / rate(entrant, 1);
        const what = `4 processes against 1, items of ${WAIT_MS} ms, ${entrant.contender.name}`;
        return [{ what, wanted: '>= 3.6 ×', measured: `${round(ratio)} ×`, met: ratio >= 3.6 }];
      }),
    };
  },
};

async function measureRate(bench: Bench, { entrant, processes: count }: Crew): Promise<number> {
  const workers = await startEntrant(entrant, { slots: SLOTS, waitMs: WAIT_MS, processes: count });
  try {
    await warmUp(bench, entrant, workers, isSlow(entrant));
    // As long a run for each crew: two seconds at best, eight in the full form.
    const seconds = bench.form.name === 'full' ? 8 : 2;
    const items = isSlow(entrant) ? 500 : Math.round((seconds * count * SLOTS * 1000) / WAIT_MS);
    const run = await runItems(bench, entrant, workers, Math.min(items, 10_000 * count));
    return run.items / ((run.totalMs - run.submitMs) / 1000);
  } finally {
    await workers.stop();
  }
}
