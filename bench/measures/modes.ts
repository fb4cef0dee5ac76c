import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { migrateDatabase } from '../../scripts/migrate.ts';
import { connect } from '../../src/db.ts';
import { createLogger } from '../../src/log.ts';
import { MODES } from '../../src/modes.ts';
import { startQueue } from '../../src/queue.ts';
import { TASK_MODES } from '../../src/tasks/task.ts';
import { makeExpandedTask } from '../../test/support/fanout.ts';
import { makeTask, type TestBench, takeResults } from '../../test/support/fixtures.ts';
import { createDatabase, dropDatabase } from '../database.ts';
import { median, milliseconds, round } from '../numbers.ts';
import { sayProgress } from '../report.ts';
import type { SettleOrder } from '../settle-process.ts';
import type { Measure } from './measure.ts';

const PLACES = [
  { processes: 1, atOnce: 1 },
  { processes: 1, atOnce: 10 },
  { processes: 1, atOnce: 100 },
  { processes: 4, atOnce: 100 },
];
const WAYS = TASK_MODES.flatMap((mode) => [false, true].map((inGroups) => ({ mode, inGroups })));
const LARGE = 10_000;
const REQUESTS = 100;

/**
 * What the modes cost beside each other: settles a second of one task, whose children meet at its counter in fan-out mode, and
 * a look at the counts of a large one.
 */
export const modes: Measure = {
  name: 'modes',
  async take({ serverUrl, form }) {
    const url = await createDatabase(serverUrl, 'modes');
    await migrateDatabase(url);
    const sql = connect(url, { max: 4, applicationName: 'bench' });
    const log = createLogger({ level: 'error', write: () => {} });
    const boss = await startQueue({ databaseUrl: url, supervise: false, log });
    const children = await Promise.all(Array.from({ length: 4 }, () => startChild(url)));
    const bench: TestBench = { sql, boss, url, name: 'modes' };
    try {
      const settles = await measureSettles(bench, children, form.rounds);
      const counts = await measureCounts(bench);
      return {
        tables: [
          {
            title: 'Settles a second of one task, by how many of its results end at once',
            columns: [
              'processes',
              'at once',
              ...WAYS.map(({ mode, inGroups }) => `${mode}, ${inGroups ? 'in groups' : 'one by one'}`),
            ],
            rows: settles,
          },
          {
            title: `A look at the counts of a task with ${LARGE.toLocaleString('en')} results`,
            columns: [...TASK_MODES],
            rows: [counts],
          },
        ],
      };
    } finally {
      for (const child of children) child.kill();
      await boss.stop({ graceful: false });
      await sql.end();
      await dropDatabase(url);
    }
  },
};

async function startChild(url: string): Promise<ChildProcess> {
  const child = fork(fileURLToPath(new URL('../settle-process.ts', import.meta.url)), {
    execArgv: ['--experimental-strip-types', '--disable-warning=ExperimentalWarning'],
    env: { ...process.env, DATABASE_URL: url },
  });
  await once(child, 'message');
  return child;
}

async function measureSettles(bench: TestBench, children: ChildProcess[], rounds: number): Promise<string[][]> {
  const rows: string[][] = [];
  for (const { processes, atOnce } of PLACES) {
    sayProgress(`settles, ${processes} processes, ${atOnce} at once`);
    const rates = new Map(WAYS.map((way) => [way, [] as number[]]));
    for (let i = 0; i < rounds; i++) {
      for (const way of WAYS) {
        const rate = await settleAll(bench, children.slice(0, processes), { ...way, atOnce: atOnce / processes });
        rates.get(way)?.push(rate);
      }
    }
    rows.push([String(processes), String(atOnce), ...[...rates.values()].map((of) => round(median(of)))]);
  }
  return rows;
}

/** Settles all results of a new task, and answers how many a second. */
async function settleAll(
  bench: TestBench,
  children: ChildProcess[],
  how: Omit<SettleOrder, 'settlements'>,
): Promise<number> {
  const count = Math.min(3000, 300 * how.atOnce * children.length);
  const own = { ...bench, mode: MODES[how.mode] };
  if (how.mode === 'scatter') await makeTask(own, count);
  else await makeExpandedTask(own, count);
  const held = await takeResults(own, count);
  const settlements = held.map(({ claim: { taskId, resultId, attempt }, job }): SettleOrder['settlements'][number] => {
    return { taskId, resultId, attempt, job, ending: { kind: 'completed', data: { title: { value: 'A paper' } } } };
  });
  await bench.sql`checkpoint`;
  const startedAt = performance.now();
  await Promise.all(
    children.map(async (child, i) => {
      child.send({ ...how, settlements: settlements.filter((_, n) => n % children.length === i) });
      await once(child, 'message');
    }),
  );
  return count / ((performance.now() - startedAt) / 1000);
}

/** The median of some looks at a task that is half done. */
async function measureCounts(bench: TestBench): Promise<string[]> {
  const cells: string[] = [];
  for (const mode of TASK_MODES) {
    sayProgress(`counts of a large task, ${mode}`);
    const own = { ...bench, mode: MODES[mode] };
    const { taskId } = mode === 'scatter' ? await makeTask(own, LARGE) : await makeExpandedTask(own, LARGE);
    await bench.sql`analyze asl_schema.extraction_result`;
    await bench.sql`
      update asl_schema.extraction_result
      set status = 'completed', attempt = 1, extracted_data = '{}', finished_at = now()
      where task_id = ${taskId}::uuid
        and id in (
          select id from asl_schema.extraction_result where task_id = ${taskId}::uuid order by id limit ${LARGE / 2}
        )`;
    if (mode === 'fanout') {
      await bench.sql`
        update asl_schema.fanout_tally set success_count = ${LARGE / 2} where task_id = ${taskId}::uuid`;
    }
    await bench.sql`vacuum analyze asl_schema.extraction_result`;
    const times: number[] = [];
    for (let i = 0; i < REQUESTS; i++) {
      const startedAt = performance.now();
      await MODES[mode].progress(bench.sql, taskId);
      times.push(performance.now() - startedAt);
    }
    cells.push(milliseconds(median(times)));
  }
  return cells;
}
