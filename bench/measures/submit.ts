import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';
import { connect, inTransaction, type Sql } from '../../src/db.ts';
import { makeDocuments } from '../../test/support/fixtures.ts';
import { type Bench, closeEntrants, type Entrant, inTurn, openEntrants } from '../bench.ts';
import { insertOpenTask, jobTable } from '../filled.ts';
import { median, milliseconds, round } from '../numbers.ts';
import type { Measure } from './measure.ts';

const FLOOR = 'the floor: the same rows in three statements';
const SIZE = 10_000;

/** Somebody who submits: a contender, or the floor. */
type Submitter = { name: string; stage(count: number): Promise<() => Promise<unknown>> };

/** How long a submit takes, from the call to its answer, while nobody works. On databases of its own: nobody ever will. */
export const submit: Measure = {
  name: 'submit',
  async take(bench) {
    const { form, serverUrl } = bench;
    const sizes = form.name === 'full' ? [100, 1000, SIZE, 100_000] : [100, 1000, SIZE];
    const entrants = await openAgain(bench);
    const ours = entrants.find(({ contender }) => contender.name === 'Sheaf, scatter');
    const sql = connect(ours?.settings.databaseUrl ?? serverUrl, { max: 1, applicationName: 'bench' });
    const submitters: Submitter[] = entrants.map(({ contender: { name }, client }) => ({ name, stage: client.stage }));
    if (ours !== undefined) submitters.push(floor(sql));
    const medians = new Map<string, number[]>(submitters.map(({ name }) => [name, []]));
    try {
      for (const size of sizes) {
        // One more round, which warms up and does not count.
        const rounds = size > SIZE ? form.rounds : form.rounds + 1;
        const times = await inTurn(
          rounds,
          submitters,
          (submitter) => timeOf(submitter, size),
          ({ name }) => `${size}: ${name}`,
        );
        for (const [{ name }, of] of times) medians.get(name)?.push(median(of.slice(rounds - form.rounds)));
      }
    } finally {
      await sql.end();
      await closeEntrants(entrants);
    }
    const at = (name: string) => medians.get(name)?.[sizes.indexOf(SIZE)] ?? Number.NaN;
    const ratio = at('Sheaf, scatter') / at(FLOOR);
    const what = `submit of ${SIZE}, Sheaf, scatter against the floor`;
    return {
      tables: [
        {
          title: 'Submit in one call, to its answer; fan-out answers before its results are made',
          columns: ['contender', ...sizes.map((size) => size.toLocaleString('en'))],
          rows: [...medians].map(([name, of]) => [name, ...of.map(milliseconds)]),
        },
      ],
      targets:
        ours === undefined ? [] : [{ what, wanted: '<= 1.5 ×', measured: `${round(ratio)} ×`, met: ratio <= 1.5 }],
    };
  },
};

async function openAgain(bench: Bench): Promise<Entrant[]> {
  const redisUrl = bench.entrants.find(({ settings }) => settings.redisUrl)?.settings.redisUrl;
  const contenders = bench.entrants.map(({ contender }) => contender);
  // Another of Redis' sixteen databases.
  return await openEntrants(bench.serverUrl, contenders, redisUrl && `${redisUrl}/1`, '_submit');
}

async function timeOf(submitter: Submitter, size: number): Promise<number> {
  const call = await submitter.stage(size);
  // What the one before has left to be done beside its answer, such as an analyze.
  await sleep(150);
  const startedAt = performance.now();
  await call();
  return performance.now() - startedAt;
}

function floor(sql: Sql): Submitter {
  const projects = new Map<number, string>();
  return {
    name: FLOOR,
    async stage(count) {
      const jobs = await jobTable(sql);
      const projectId = projects.get(count) ?? `floor-${uuidv7()}`;
      if (!projects.has(count)) await makeDocuments(sql, projectId, count);
      projects.set(count, projectId);
      return () => inTransaction(sql, (tx) => insertOpenTask(tx, { projectId, count, jobs }));
    },
  };
}
