import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { claimResults } from '../../src/tasks/claim-results.ts';
import { fetchDeliveries, makeTask, openTestBench, readResult } from '../support/fixtures.ts';
import { untilBlocked } from '../support/waiting.ts';

const bench = await openTestBench(import.meta.url);
const { sql, boss } = bench;

test('a cancel that meets a claim in flight ends the attempt which that claim begins', async () => {
  const { taskId, resultIds } = await makeTask(bench, 1);
  const [fetched] = await fetchDeliveries(bench, 1);
  assert.ok(fetched);
  let cancelling: Promise<unknown> | undefined;
  await sql.begin(async (tx) => {
    await claimResults(tx, { deliveries: [fetched.delivery], worker: 'test', maxAttempts: 4 });
    cancelling = cancelTask(sql, boss, taskId);
    await untilBlocked(sql, "in ('pending', 'extracting')");
  });
  await cancelling;
  const { row, attempts } = await readResult(sql, resultIds[0] as string);
  assert.deepEqual([row.status, row.attempt, attempts.map(({ outcome }) => outcome)], ['cancelled', 1, ['cancelled']]);
});
