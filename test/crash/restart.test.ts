import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, test } from 'node:test';
import { makeTask, openTestBench } from '../support/fixtures.ts';
import { startProcess } from '../support/process.ts';
import { until } from '../support/waiting.ts';
import { breaches, installAudit, isAtRest } from './audit.ts';
import { type CrashProcess, killAll, startCrashProcess } from './process.ts';

const bench = await openTestBench(import.meta.url);
const { sql, url } = bench;
await installAudit(sql);
after(killAll);

const PAPERS = 150;

test('a rolling restart under load burns no attempt, shows no error, and every paper is done', async () => {
  const { taskId } = await makeTask(bench, PAPERS);
  // Longer than a process that stops may wait: most of what runs then is handed back.
  const env = { ENGINE: 'wait:1200', SHUTDOWN_GRACE_SECONDS: '1', WORKER_SLOTS: '8' };
  const start = () => startCrashProcess(url, { env });
  const all: CrashProcess[] = await Promise.all([start(), start()]);
  for (let restarts = 0; restarts < 4; restarts++) {
    const old = all[restarts];
    await until('work in the old process', () => (old?.runs.length ?? 0) >= 8, 60_000);
    old?.signal('SIGTERM');
    const [code, next] = await Promise.all([old?.ended, start()]);
    assert.equal(code, 0, old?.log());
    all.push(next);
  }
  await until(
    'the task closed',
    async () => (await sql`select 1 from asl_schema.extraction_task where id = ${taskId} and status = 'completed'`)[0],
    90_000,
  );
  const [counts] = await sql`
    select
      count(*) filter (where status = 'completed')::int as completed,
      sum(failed_attempts)::int as failed,
      sum(attempt - 1)::int as "handedBack"
    from asl_schema.extraction_result where task_id = ${taskId}`;
  assert.deepEqual([counts?.completed, counts?.failed], [PAPERS, 0]);
  assert.ok(counts?.handedBack > 0, 'the stops met running extractions');
  const outcomes = await sql`select distinct outcome from asl_schema.extraction_attempt order by outcome`;
  assert.deepEqual(
    outcomes.map((row) => row.outcome),
    ['completed', 'released'],
  );
  for (const process of all) assert.doesNotMatch(process.log(), /"level":"(error|warn)"/);
  await until('rest', () => isAtRest(sql), 60_000);
  assert.deepEqual(await breaches(sql), []);
  for (const process of all) process.signal('SIGTERM');
  assert.deepEqual(new Set(await Promise.all(all.map(({ ended }) => ended))), new Set([0]));
});

test('a process that has just lost its listening connection hands back its work when it stops', async () => {
  const { taskId } = await makeTask(bench, 3);
  const env = { ENGINE: 'hold', SHUTDOWN_GRACE_SECONDS: '0', ROLES: 'worker' };
  const process = await startCrashProcess(url, { env });
  await until('its extractions', () => process.runs.length === 3, 60_000);
  await sql`
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name = 'sheaf' and query like 'listen%'`;
  process.signal('SIGTERM');
  assert.equal(await process.ended, 0, process.log());
  const left = await sql`
    select r.status, r.failed_attempts, a.outcome
    from asl_schema.extraction_result r
    join asl_schema.extraction_attempt a on a.task_id = r.task_id and a.result_id = r.id
    where r.task_id = ${taskId}`;
  assert.deepEqual([...left], Array(3).fill({ status: 'pending', failed_attempts: 0, outcome: 'released' }));
});

test('a second SIGTERM leaves at once, whatever is in flight', async () => {
  const service = await startProcess(url, { SHUTDOWN_GRACE_SECONDS: '600', ROLES: 'api' });
  // An upload whose client has fallen silent: a graceful stop would wait for it.
  const { hostname, port } = new URL(service.url);
  const upload = connect(Number(port), hostname);
  upload.on('error', () => {});
  upload.write(
    'POST /documents?projectId=p&filename=a.txt HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n',
  );
  await new Promise((told) => upload.once('data', told));
  service.child.kill('SIGTERM');
  await until('the first is heeded', () => service.log().includes('"stopping"'));
  assert.equal(service.child.exitCode, null);
  const sentAt = Date.now();
  assert.equal(await service.stop(), 1);
  assert.ok(Date.now() - sentAt < 10_000);
  upload.destroy();
});
