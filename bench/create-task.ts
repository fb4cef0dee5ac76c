import { arch, cpus, platform } from 'node:os';
import { v7 as uuidv7 } from 'uuid';
import { isMain, requireDatabaseUrl, runScript } from '../scripts/cli.ts';
import { migrateDatabase } from '../scripts/migrate.ts';
import { loadConfig } from '../src/config.ts';
import { connect } from '../src/db.ts';
import { startService } from '../src/service.ts';
import { makeDocuments, TRIAL_TEMPLATE_ID } from '../test/support/fixtures.ts';

const SIZES = [100, 1000, 10_000];
const ROUNDS = 7;

/**
 * How long `POST /tasks` takes, from the request's first byte to the answer's last, over loopback: the median of some rounds
 * after one that warms up. Only the API runs, so nobody works on the tasks meanwhile.
 */
async function measure(): Promise<number> {
  const databaseUrl = new URL(requireDatabaseUrl());
  databaseUrl.pathname = '/sheaf_bench';
  await migrateDatabase(databaseUrl.href);
  const env = { ...process.env, DATABASE_URL: databaseUrl.href, PORT: '0', ROLES: 'api', LOG_LEVEL: 'error' };
  const service = await startService(loadConfig(env));
  const sql = connect(databaseUrl.href, { max: 2, applicationName: 'bench' });
  try {
    const [{ version } = { version: '' }] = await sql<{ version: string }[]>`
      select current_setting('server_version') as version`;
    const processor = cpus()[0]?.model ?? 'unknown processor';
    say(`Node ${process.version}, PostgreSQL ${version}, ${cpus().length} × ${processor}, ${platform()} ${arch()}\n`);
    say('| documents in one POST /tasks | median | best | worst |');
    say('|---:|---:|---:|---:|');
    for (const size of SIZES) {
      const documentIds = await makeDocuments(sql, `bench-${size}-${uuidv7()}`, size);
      const [document] = await sql<{ projectId: string }[]>`
        select project_id as "projectId" from asl_schema.document where id = ${documentIds[0] ?? ''}`;
      const body = JSON.stringify({ projectId: document?.projectId, templateId: TRIAL_TEMPLATE_ID, documentIds });
      const times: number[] = [];
      for (let round = 0; round <= ROUNDS; round++) {
        const startedAt = performance.now();
        const headers = { 'content-type': 'application/json' };
        const response = await fetch(`${service.url}/tasks`, { method: 'POST', headers, body });
        const answer = await response.text();
        if (response.status !== 201) throw new Error(`answered ${response.status}: ${answer.slice(0, 200)}`);
        if (round > 0) times.push(performance.now() - startedAt);
      }
      times.sort((a, b) => a - b);
      const [best = 0, median = 0, worst = 0] = [times[0], times[Math.floor(times.length / 2)], times.at(-1)];
      say(`| ${size} | ${median.toFixed(0)} ms | ${best.toFixed(0)} ms | ${worst.toFixed(0)} ms |`);
    }
  } finally {
    await service.stop();
    await sql`drop schema asl_schema cascade`;
    await sql`drop schema pgboss cascade`;
    await sql.end();
  }
  return 0;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

if (isMain(import.meta.url)) await runScript(measure);
