import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { client } from '../support/client.ts';
import { openTestDatabase } from '../support/database.ts';
import { makeDocuments, TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';
import { until } from '../support/waiting.ts';
import { breaches, installAudit, isAtRest } from './audit.ts';
import type { KillPlan } from './child.ts';
import { killAll, startCrashProcess } from './process.ts';

const { sql, url } = await openTestDatabase(import.meta.url);
after(killAll);

const INSERT_TASK = 'insert into asl_schema.extraction_task';
const POINTS: { at: string; plan: KillPlan; leaves: 'nothing' | 'everything' | 'either' }[] = [
  { at: 'before the task is inserted', plan: { before: INSERT_TASK }, leaves: 'nothing' },
  { at: 'after the task', plan: { before: 'insert into asl_schema.extraction_result' }, leaves: 'nothing' },
  { at: 'after the results', plan: { after: INSERT_TASK, before: 'INSERT INTO pgboss' }, leaves: 'nothing' },
  { at: 'after the jobs', plan: { after: INSERT_TASK, before: 'pg_notify' }, leaves: 'nothing' },
  { at: 'after the word to the workers', plan: { after: INSERT_TASK, before: 'commit' }, leaves: 'nothing' },
  {
    at: 'while the commit is on its way',
    plan: { after: INSERT_TASK, before: 'commit', sent: true },
    leaves: 'either',
  },
  {
    at: 'after the commit',
    plan: { after: 'pg_notify', before: 'from asl_schema.extraction_task' },
    leaves: 'everything',
  },
];
const PAPERS = 3;

test('a create that is killed at any step leaves all of it or nothing; sent again under its key it makes one task, which closes', async (t) => {
  await installAudit(sql);
  const survivor = await startCrashProcess(url);
  const api = client(survivor.url);

  await Promise.all(
    POINTS.map(async ({ at, plan, leaves }, i) => {
      const projectId = `create-${i}`;
      const documentIds = await makeDocuments(sql, projectId, PAPERS);
      const request = { projectId, templateId: TRIAL_TEMPLATE_ID, documentIds, idempotencyKey: projectId };
      const killed = await startCrashProcess(url, { crashAt: plan, env: { ROLES: 'api' } });
      const tasksNow = () => sql<{ id: string }[]>`
        select id from asl_schema.extraction_task where project_id = ${projectId}`;

      await t.test(at, async () => {
        // The client hears nothing but that the connection broke.
        await assert.rejects(client(killed.url).call('POST', '/tasks', request), /fetch failed/);
        assert.equal(await killed.ended, 'SIGKILL');
        assert.ok(killed.killedAtMs(), 'it killed itself, and not something else');
        const left = await tasksNow();
        if (leaves !== 'either') assert.equal(left.length, leaves === 'nothing' ? 0 : 1);

        const { taskId } = await api.call<{ taskId: string }>('POST', '/tasks', request);
        const tasks = await tasksNow();
        assert.deepEqual([...tasks], [{ id: taskId }]);
        if (left[0]) assert.equal(taskId, left[0].id);
        const { success, total } = await api.closed(taskId);
        assert.deepEqual([success, total], [PAPERS, PAPERS]);
      });
    }),
  );
  await until('rest', () => isAtRest(sql), 60_000);
  assert.deepEqual(await breaches(sql), []);
  survivor.signal('SIGTERM');
  assert.equal(await survivor.ended, 0);
});
