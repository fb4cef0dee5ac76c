import { constants } from 'node:os';
import { Complaint, isMain, requireDatabaseUrl, runScript } from '../scripts/cli.ts';
import { connect } from '../src/db.ts';
import { openBench } from './bench.ts';
import { readForm } from './form.ts';
import { describeMachine } from './machine.ts';
import { MEASURES } from './measures/index.ts';
import { say, sayProgress, sayTable, sayTargets, type Target } from './report.ts';

/**
 * Takes the measures that were asked for, prints each as a table when it is there, and at the end what was promised and
 * whether it holds. Everything happens in databases of its own, `sheaf_bench_…`, on the server of DATABASE_URL.
 */
async function main(): Promise<number> {
  // What was started here is ended when this process exits, which a signal alone does not make it do.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => process.exit(128 + constants.signals[signal]));
  }
  const form = readForm(process.env);
  const unknown = form.only.filter((name) => !MEASURES.some((measure) => measure.name === name));
  if (unknown.length > 0) {
    throw new Complaint(`no measure ${unknown.join(', ')}: there are ${MEASURES.map(({ name }) => name).join(', ')}`);
  }
  const serverUrl = requireDatabaseUrl();
  const startedAt = performance.now();
  const sql = connect(serverUrl, { max: 1, applicationName: 'bench' });
  for (const line of await describeMachine(sql)) say(line);
  await sql.end();

  const bench = await openBench(serverUrl, form);
  const targets: Target[] = [];
  try {
    if (bench.redisVersion !== undefined) say(`Redis ${bench.redisVersion} (appendonly yes, appendfsync everysec)`);
    for (const line of bench.absent) say(line);
    for (const measure of MEASURES) {
      if (form.only.length > 0 && !form.only.includes(measure.name)) continue;
      sayProgress(`${measure.name} (after ${Math.round((performance.now() - startedAt) / 1000)} s)`);
      const found = await measure.take(bench);
      for (const table of found.tables) sayTable(table);
      targets.push(...(found.targets ?? []));
    }
  } finally {
    await bench.close();
  }
  sayTargets(targets);
  say(`\n${form.name} form, ${form.rounds} rounds, medians; ${Math.round((performance.now() - startedAt) / 1000)} s`);
  return 0;
}

if (isMain(import.meta.url)) await runScript(main);
