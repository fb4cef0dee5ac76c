import { v7 as uuidv7 } from 'uuid';
import { migrateDatabase } from '../../scripts/migrate.ts';
import { loadConfig } from '../../src/config.ts';
import { connect, type Sql } from '../../src/db.ts';
import { startService } from '../../src/service.ts';
import { fillOldTasks } from '../../test/support/filled.ts';
import { makeDocuments, TRIAL_TEMPLATE_ID } from '../../test/support/fixtures.ts';
import { createDatabase, dropDatabase } from '../database.ts';
import { median, milliseconds, percentile, round } from '../numbers.ts';
import { sayProgress, type Target } from '../report.ts';
import type { Measure } from './measure.ts';

const OLD_TASKS = 10_000;
const RESULTS = 1000;
const REQUESTS = 400;
const MILLION = 1_000_000;

/**
 * How long the questions take that people ask most while the table grows with the years: over HTTP, one after the other. The
 * task that is asked for is half done.
 */
export const status: Measure = {
  name: 'status',
  async take({ serverUrl, form }) {
    const databaseUrl = await createDatabase(serverUrl, 'status');
    await migrateDatabase(databaseUrl);
    const service = await startService(
      loadConfig({ DATABASE_URL: databaseUrl, PORT: '0', ROLES: 'api', LOG_LEVEL: 'error' }),
    );
    const sql = connect(databaseUrl, { max: 1, applicationName: 'bench' });
    const rows: string[][] = [];
    const p99s: number[] = [];
    try {
      let filled = 0;
      for (const old of form.name === 'full' ? [0, MILLION, 5 * MILLION] : [0, MILLION]) {
        await fillTo(sql, filled, old);
        filled = old;
        const { taskId, projectId } = await makeHalfDoneTask(sql, `${service.url}`);
        const paths = [`/tasks/${taskId}/status`, '/tasks?limit=50', `/tasks?limit=50&projectId=${projectId}`];
        const cells: string[] = [];
        for (const path of paths) {
          const [p50, p99] = await measureRequests(`${service.url}${path}`, form.rounds);
          cells.push(milliseconds(p50), milliseconds(p99));
          if (path === paths[0]) p99s.push(p99);
        }
        rows.push([old.toLocaleString('en'), ...cells]);
      }
    } finally {
      await service.stop();
      await sql.end();
      await dropDatabase(databaseUrl);
    }
    const ratio = (p99s.at(-1) ?? Number.NaN) / (p99s[0] ?? Number.NaN);
    const what = `status p99 with ${form.name === 'full' ? 5 : 1} million old results against none`;
    const target: Target = { what, wanted: '<= 1.5 ×', measured: `${round(ratio)} ×`, met: ratio <= 1.5 };
    const asked = ['status', 'list of tasks', 'of a project'].flatMap((name) => [`${name} p50`, 'p99']);
    const title = `Requests with old results in the table, in ${OLD_TASKS.toLocaleString('en')} closed tasks`;
    return { tables: [{ title, columns: ['old results', ...asked], rows }], targets: [target] };
  },
};

/** Adds what is missing. The old tasks come with the first; later ones get results of their own. */
async function fillTo(sql: Sql, from: number, to: number): Promise<void> {
  if (to === 0) return;
  sayProgress(`filling ${(to - from).toLocaleString('en')} old results`);
  if (from > 0) await sql`delete from asl_schema.extraction_task where project_id like 'old-%'`;
  await fillOldTasks(sql, { tasks: OLD_TASKS, total: to });
  await sql`vacuum analyze asl_schema.extraction_task, asl_schema.extraction_result`;
}

async function makeHalfDoneTask(sql: Sql, url: string): Promise<{ taskId: string; projectId: string }> {
  const projectId = `bench-${uuidv7()}`;
  const documentIds = await makeDocuments(sql, projectId, RESULTS);
  const body = JSON.stringify({ projectId, templateId: TRIAL_TEMPLATE_ID, documentIds });
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${url}/tasks`, { method: 'POST', headers, body });
  const { taskId } = (await response.json()) as { taskId: string };
  await sql`
    update asl_schema.extraction_result
    set status = 'completed', attempt = 1, extracted_data = '{"title":{"value":"A title"}}', finished_at = now()
    where task_id = ${taskId}::uuid
      and id in (
        select id from asl_schema.extraction_result where task_id = ${taskId}::uuid order by id limit ${RESULTS / 2}
      )`;
  return { taskId, projectId };
}

/** The medians over the rounds of each round's p50 and p99, in milliseconds. */
async function measureRequests(url: string, rounds: number): Promise<[number, number]> {
  const times: number[][] = [];
  for (let i = 0; i <= rounds; i++) {
    const round: number[] = [];
    for (let request = 0; request < REQUESTS; request++) {
      const startedAt = performance.now();
      const response = await fetch(url);
      await response.text();
      if (response.status !== 200) throw new Error(`answered ${response.status}`);
      round.push(performance.now() - startedAt);
    }
    // The first one warms up.
    if (i > 0) times.push(round);
  }
  return [median(times.map((of) => percentile(of, 50))), median(times.map((of) => percentile(of, 99)))];
}
