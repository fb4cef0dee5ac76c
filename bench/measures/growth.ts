import { connect, type Sql } from '../../src/db.ts';
import { type Bench, closeEntrants, type Entrant, openEntrants, runItems, startEntrant, warmUp } from '../bench.ts';
import { holdIdleTransaction } from '../database.ts';
import { jobTable } from '../filled.ts';
import { megabytes, round } from '../numbers.ts';
import { sayProgress, type Table, type Target } from '../report.ts';
import type { Measure } from './measure.ts';

const ROUNDS = 10;

type Relation = { name: string; rows: number; dead: number; tableBytes: number; indexBytes: number };

/**
 * Ten rounds of work while somebody holds a transaction open: vacuum may remove nothing, so every row that an update or a
 * delete leaves behind stays, and whoever has to walk over them gets slower. The others' tuned forms go along, to compare.
 */
export const growth: Measure = {
  name: 'growth',
  async take(bench) {
    const fast = bench.entrants
      .map(({ contender }) => contender)
      .filter(({ form, needsRedis }) => form !== 'plain' && !needsRedis);
    const entrants = await openEntrants(bench.serverUrl, fast, undefined, '_growth');
    const rows: string[][] = [];
    const sizes: Table[] = [];
    const targets: Target[] = [];
    try {
      for (const entrant of entrants) {
        const { rates, relations } = await measureGrowth(bench, entrant);
        const { name, form } = entrant.contender;
        const ratio = (rates.at(-1) ?? Number.NaN) / (rates[0] ?? Number.NaN);
        const measured = `${round(100 * ratio)} %`;
        rows.push([name, ...rates.map(round), measured]);
        if (form !== 'ours') continue;
        sizes.push(toSizes(name, relations));
        const what = `round ${ROUNDS} against round 1 with an idle transaction, ${name}`;
        targets.push({ what, wanted: '>= 80 %', measured, met: ratio >= 0.8 });
      }
    } finally {
      await closeEntrants(entrants);
    }
    const title = `No-op items/s in ${ROUNDS} rounds, with a transaction that idles all the while`;
    const columns = ['contender', ...Array.from({ length: ROUNDS }, (_, i) => `round ${i + 1}`), 'last of first'];
    return { tables: [{ title, columns, rows }, ...sizes], targets };
  },
};

async function measureGrowth(bench: Bench, entrant: Entrant): Promise<{ rates: number[]; relations: Relation[] }> {
  const items = bench.form.name === 'full' ? 10_000 : 2000;
  const { databaseUrl } = entrant.settings;
  const workers = await startEntrant(entrant, { slots: 32, waitMs: 0 });
  const sql = connect(databaseUrl, { max: 1, applicationName: 'bench' });
  const rates: number[] = [];
  try {
    for (let i = 0; i < 3; i++) await warmUp(bench, entrant, workers, false);
    const release = await holdIdleTransaction(databaseUrl);
    for (let i = 0; i < ROUNDS; i++) {
      sayProgress(`${entrant.contender.name}: ${i + 1} of ${ROUNDS} with an idle transaction`);
      const { totalMs } = await runItems(bench, entrant, workers, items);
      rates.push(items / (totalMs / 1000));
    }
    const relations = entrant.contender.form === 'ours' ? await readSizes(sql) : [];
    await release();
    return { rates, relations };
  } finally {
    await workers.stop();
    await sql.end();
  }
}

async function readSizes(sql: Sql): Promise<Relation[]> {
  const jobs = await jobTable(sql);
  return await sql<Relation[]>`
    select
      case when schemaname = 'pgboss' then 'jobs of ' || coalesce(queue.name, relname) else relname end as name,
      n_live_tup::float8 as rows,
      n_dead_tup::float8 as dead,
      pg_table_size(relid)::float8 as "tableBytes",
      pg_indexes_size(relid)::float8 as "indexBytes"
    from pg_stat_user_tables
    left join pgboss.queue on queue.table_name = relname
    where relname in ('extraction_task', 'extraction_result', 'extraction_attempt', 'fanout_tally', ${jobs})
      or queue.name = 'asl_extract_child'
    order by schemaname, relname`;
}

function toSizes(name: string, relations: readonly Relation[]): Table {
  return {
    title: `${name}: what the tables have come to`,
    columns: ['table', 'rows', 'dead rows', 'table', 'indexes'],
    rows: relations.map((relation) => [
      relation.name,
      relation.rows.toLocaleString('en'),
      relation.dead.toLocaleString('en'),
      megabytes(relation.tableBytes),
      megabytes(relation.indexBytes),
    ]),
  };
}
