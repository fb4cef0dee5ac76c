import { v7 as uuidv7 } from 'uuid';
import { migrateDatabase } from '../../scripts/migrate.ts';
import { loadConfig } from '../../src/config.ts';
import { connect } from '../../src/db.ts';
import { startService } from '../../src/service.ts';
import { makeDocuments, TRIAL_TEMPLATE_ID } from '../../test/support/fixtures.ts';
import { createDatabase, dropDatabase } from '../database.ts';
import { median, milliseconds } from '../numbers.ts';
import type { Measure } from './measure.ts';

const SIZES = [100, 1000, 10_000];
const ROUNDS = 7;

/**
 * How long `POST /tasks` takes, from the request's first byte to the answer's last, over loopback: the median of some rounds
 * after one that warms up. Only the API runs, so nobody works on the tasks meanwhile.
 */
export const createTaskOverHttp: Measure = {
  name: 'create-task',
  async take({ serverUrl }) {
    const databaseUrl = await createDatabase(serverUrl, 'create_task');
    await migrateDatabase(databaseUrl);
    const service = await startService(
      loadConfig({ DATABASE_URL: databaseUrl, PORT: '0', ROLES: 'api', LOG_LEVEL: 'error' }),
    );
    const sql = connect(databaseUrl, { max: 2, applicationName: 'bench' });
    const rows: string[][] = [];
    try {
      for (const size of SIZES) {
        const projectId = `bench-${size}-${uuidv7()}`;
        const documentIds = await makeDocuments(sql, projectId, size);
        const body = JSON.stringify({ projectId, templateId: TRIAL_TEMPLATE_ID, documentIds });
        const times: number[] = [];
        for (let round = 0; round <= ROUNDS; round++) {
          const ms = await post(`${service.url}/tasks`, body);
          if (round > 0) times.push(ms);
        }
        rows.push([String(size), median(times), Math.min(...times), Math.max(...times)].map(toCell));
      }
    } finally {
      await service.stop();
      await sql.end();
      await dropDatabase(databaseUrl);
    }
    const title = '`POST /tasks`, from the first byte of the request to the last of the answer';
    return { tables: [{ title, columns: ['documents in one POST /tasks', 'median', 'best', 'worst'], rows }] };
  },
};

async function post(url: string, body: string): Promise<number> {
  const startedAt = performance.now();
  const response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  const answer = await response.text();
  if (response.status !== 201) throw new Error(`answered ${response.status}: ${answer.slice(0, 200)}`);
  return performance.now() - startedAt;
}

function toCell(value: string | number): string {
  return typeof value === 'string' ? value : milliseconds(value);
}
