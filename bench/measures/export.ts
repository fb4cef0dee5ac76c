import { fork } from 'node:child_process';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { fileURLToPath } from 'node:url';
import { migrateDatabase } from '../../scripts/migrate.ts';
import { connect } from '../../src/db.ts';
import type { Usage } from '../../test/exports/export-process.ts';
import { addResults, fillTask } from '../../test/exports/filled-task.ts';
import { createDatabase, dropDatabase } from '../database.ts';
import { median, megabytes, round } from '../numbers.ts';
import { sayProgress, type Target } from '../report.ts';
import type { Measure } from './measure.ts';

const RESULT_BYTES = 16_000;
const FILL = 5000;
const WANTED = 150_000_000;

type Export = { bytes: number; seconds: number; rssBytes: number };

/** A large task as a file, to a client that reads as fast as it can, from an API in a process of its own. */
export const exporting: Measure = {
  name: 'export',
  async take({ serverUrl, form }) {
    const count = form.name === 'full' ? 100_000 : 10_000;
    const databaseUrl = await createDatabase(serverUrl, 'export');
    await migrateDatabase(databaseUrl);
    const sql = connect(databaseUrl, { max: 1, applicationName: 'bench' });
    sayProgress(`filling ${count.toLocaleString('en')} results of ${RESULT_BYTES} bytes`);
    const taskId = await fillTask(sql, FILL, RESULT_BYTES);
    for (let from = FILL + 1; from <= count; from += FILL) {
      await addResults(sql, taskId, { from, count: FILL, bytes: RESULT_BYTES });
    }
    const small = await fillTask(sql, 500, RESULT_BYTES);
    await sql.end();
    const rows: string[][] = [];
    const targets: Target[] = [];
    try {
      for (const format of ['ndjson', 'csv']) {
        const { idleBytes, runs } = await exportRounds(databaseUrl, { small, taskId, format, rounds: form.rounds });
        const peak = Math.max(...runs.map(({ rssBytes }) => rssBytes));
        rows.push([
          `${count.toLocaleString('en')} results as ${format}`,
          megabytes(median(runs.map(({ bytes }) => bytes))),
          round(median(runs.map(({ seconds }) => count / seconds))),
          `${round(median(runs.map(({ bytes, seconds }) => bytes / seconds / 1e6)))} MB/s`,
          megabytes(idleBytes),
          megabytes(peak),
          megabytes(peak - idleBytes),
        ]);
        const measured = peak - idleBytes;
        const what = `memory that an export of ${count.toLocaleString('en')} × 16 kB as ${format} takes`;
        targets.push({ what, wanted: '< 150 MB', measured: megabytes(measured), met: measured < WANTED });
      }
    } finally {
      await dropDatabase(databaseUrl);
    }
    const columns = ['export', 'size', 'results/s', 'throughput', 'memory before', 'at most', 'more'];
    return {
      tables: [{ title: 'Export of a task, to a client that reads as fast as it can', columns, rows }],
      targets,
    };
  },
};

async function exportRounds(
  databaseUrl: string,
  { small, taskId, format, rounds }: { small: string; taskId: string; format: string; rounds: number },
): Promise<{ idleBytes: number; runs: Export[] }> {
  const child = fork(fileURLToPath(new URL('../../test/exports/export-process.ts', import.meta.url)), {
    // As in test/exports/export-memory.test.ts: the young generation as large as earlier versions of Node have it.
    execArgv: ['--import', 'tsx', '--max-semi-space-size=16'],
    env: { ...process.env, DATABASE_URL: databaseUrl },
  });
  try {
    const [port] = (await once(child, 'message')) as [number];
    const usage = async (): Promise<Usage> => {
      child.send('usage?');
      const [answer] = (await once(child, 'message')) as [Usage];
      return answer;
    };
    await readAll(port, small, format);
    await usage();
    const { rssBytes: idleBytes } = await usage();
    const runs: Export[] = [];
    for (let run = 0; run < rounds; run++) {
      const startedAt = performance.now();
      const bytes = await readAll(port, taskId, format);
      const seconds = (performance.now() - startedAt) / 1000;
      runs.push({ bytes, seconds, rssBytes: (await usage()).rssBytes });
    }
    return { idleBytes, runs };
  } finally {
    child.kill('SIGKILL');
  }
}

async function readAll(port: number, taskId: string, format: string): Promise<number> {
  const path = `/tasks/${taskId}/results?format=${format}`;
  const [answer] = (await once(get({ port, path, agent: false }), 'response')) as [IncomingMessage];
  if (answer.statusCode !== 200) throw new Error(`answered ${answer.statusCode}`);
  let bytes = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) bytes += chunk.length;
  return bytes;
}
