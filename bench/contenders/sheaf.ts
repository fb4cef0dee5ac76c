import { v7 as uuidv7 } from 'uuid';
import { migrateDatabase } from '../../scripts/migrate.ts';
import { loadConfig } from '../../src/config.ts';
import { connect } from '../../src/db.ts';
import type { ExtractionEngine } from '../../src/extraction/engine.ts';
import { startQueue } from '../../src/queue.ts';
import { startService } from '../../src/service.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { getTask } from '../../src/tasks/read-tasks.ts';
import type { TaskModeName } from '../../src/tasks/task.ts';
import { limits, makeDocuments, silent, TRIAL_TEMPLATE_ID } from '../../test/support/fixtures.ts';
import type { Work } from '../work.ts';
import type { Client, ClientSettings, Contender } from './contender.ts';

/** Documents that one statement stores. */
const CHUNK = 10_000;

/**
 * Ourselves, in one of the two modes: the service as `make start` runs it, with the roles worker and aggregator, and an engine
 * that answers what everybody else's handler answers. All else is as configured by default.
 */
export function sheaf(mode: TaskModeName): Contender {
  return {
    name: `Sheaf, ${mode}`,
    form: 'ours',
    prepare: async (databaseUrl) => void (await migrateDatabase(databaseUrl)),
    openClient: (settings) => openClient(mode, settings),
    async startWorker({ databaseUrl, slots }, work) {
      const config = loadConfig({
        DATABASE_URL: databaseUrl,
        WORKER_SLOTS: String(slots),
        ROLES: 'worker,aggregator',
        LOG_LEVEL: 'error',
      });
      const service = await startService(config, { engine: standInEngine(work) });
      return () => service.stop();
    },
  };
}

function standInEngine(work: Work): ExtractionEngine {
  return {
    extract: async () => ({ data: await work.run() }),
    async close() {},
  };
}

async function openClient(mode: TaskModeName, { databaseUrl }: ClientSettings): Promise<Client> {
  const sql = connect(databaseUrl, { max: 2, applicationName: 'bench' });
  const boss = await startQueue({ databaseUrl, supervise: false, log: silent });
  /** The papers of a size, stored once: a task over the same ones again is a task of its own. */
  const papers = new Map<number, { projectId: string; documentIds: string[] }>();

  const storePapers = async (count: number): Promise<{ projectId: string; documentIds: string[] }> => {
    const projectId = `bench-${count}-${uuidv7()}`;
    const documentIds: string[] = [];
    for (let from = 0; from < count; from += CHUNK) {
      // The text of a paper is told by its number within the call and its project: another project for each call.
      const part = await makeDocuments(sql, `${projectId}-${from}`, Math.min(CHUNK, count - from));
      await sql`update asl_schema.document set project_id = ${projectId} where id = any(${part}::uuid[])`;
      documentIds.push(...part);
    }
    const stored = { projectId, documentIds };
    papers.set(count, stored);
    await sql`vacuum analyze asl_schema.document, asl_schema.document_content`;
    return stored;
  };

  return {
    async stage(count) {
      const { projectId, documentIds } = papers.get(count) ?? (await storePapers(count));
      const request = { projectId, templateId: TRIAL_TEMPLATE_ID, documentIds, idempotencyKey: uuidv7(), mode };
      return async () => {
        const made = await createTask(sql, boss, request, limits);
        if (made.outcome !== 'created') throw new Error(`not created: ${made.outcome}`);
        return made.task.taskId;
      };
    },
    async countDone(taskId) {
      const [row] = await sql<{ done: number }[]>`
        select count(*)::int as done
        from asl_schema.extraction_result
        where task_id = ${taskId}::uuid
          and status = 'completed'`;
      return row?.done ?? 0;
    },
    isClosed: async (taskId) => (await getTask(sql, taskId))?.status === 'completed',
    async close() {
      await boss.stop({ graceful: false });
      await sql.end();
    },
  };
}
