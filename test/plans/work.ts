import assert from 'node:assert/strict';
import type { Job } from 'pg-boss';
import { inTransaction } from '../../src/db.ts';
import { countChildren } from '../../src/fanout/count-children.ts';
import { type ExtractJob, headPriority, on, touchJobs } from '../../src/queue.ts';
import { checkClaims } from '../../src/tasks/check-claims.ts';
import { type ClaimOutcome, claimResults } from '../../src/tasks/claim-results.ts';
import { settleResult, settleResults } from '../../src/tasks/settle-result.ts';
import type { Ending } from '../../src/tasks/settlement.ts';
import type { TaskMode } from '../../src/tasks/task-mode.ts';
import { type HeldClaim, limits } from '../support/fixtures.ts';
import { batch, type HotStatement, one } from './hot-statement.ts';
import { DONE, finish, MODES_UNDER_TEST, type Scene, takeBatch, toSettlements } from './scene.ts';

const RETRY: Ending = { kind: 'retry', code: 'timeout', message: 'The engine took too long.', delayMs: 0 };

/** What workers do with the jobs and the results that they take. */
export const WORK: HotStatement[] = [
  ...MODES_UNDER_TEST.flatMap((mode) => [
    fetching(mode),
    claiming(mode),
    takingOver(mode, 'claimed'),
    takingOver(mode, 'exhausted'),
    settling(mode, DONE),
    settling(mode, RETRY),
    settlingOne(mode),
    beating(mode),
    checking(mode),
    lookingAhead(mode),
  ]),
  {
    name: 'a count',
    rows: one,
    async run({ large: { fanout } }, sql) {
      const nothing = { taskId: fanout.taskId, success: 0, failed: 0, cancelled: 0 };
      await inTransaction(sql, (tx) => countChildren(tx, [nothing]));
    },
  },
];

function fetching(mode: TaskMode): HotStatement {
  return {
    name: `a fetch, ${mode.name}`,
    rows: batch,
    async run(scene, sql) {
      const { bench } = scene;
      const jobs = await bench.boss.fetch<ExtractJob>(mode.queue, { batchSize: scene.batch, ...on(sql) });
      assert.equal(jobs.length, scene.batch);
      const claims = await claimResults(bench.sql, { ...toClaims(jobs), mode });
      await finish(scene, mode, pair(jobs, claims));
    },
  };
}

function claiming(mode: TaskMode): HotStatement {
  return {
    name: `a claim, ${mode.name}`,
    rows: batch,
    async run(scene, sql) {
      const { bench } = scene;
      const jobs = await bench.boss.fetch<ExtractJob>(mode.queue, { batchSize: scene.batch, ...on(bench.sql) });
      const claims = await claimResults(sql, { ...toClaims(jobs), mode });
      await finish(scene, mode, pair(jobs, claims));
    },
  };
}

/** A later delivery of what a worker has claimed, and then fallen silent. */
function takingOver(mode: TaskMode, expected: 'claimed' | 'exhausted'): HotStatement {
  return {
    name: `a claim of what a dead worker has held, ${expected}, ${mode.name}`,
    rows: batch,
    async run(scene, sql) {
      const { boss, sql: other } = scene.bench;
      const held = await takeBatch(scene, mode);
      const deliveries = held.map(({ job, claim: { taskId, resultId } }) => {
        return { taskId, resultId, jobId: job.id, delivery: job.retryCount + 1 };
      });
      const maxAttempts = expected === 'claimed' ? 100 : 1;
      const claims = await claimResults(sql, { deliveries, worker: 'test', maxAttempts, mode });
      assert.ok(claims.every(({ outcome }) => outcome === expected));
      const jobs = held.map(({ job }) => job);
      if (expected === 'claimed') await finish(scene, mode, pair(jobs, claims));
      else await boss.complete(mode.queue, jobs, null, on(other));
    },
  };
}

function settling(mode: TaskMode, ending: Ending): HotStatement {
  return {
    name: `a settle of a batch, ${ending.kind}, ${mode.name}`,
    rows: batch,
    async run(scene, sql) {
      const settlements = toSettlements(await takeBatch(scene, mode), ending);
      const jobLimits = { ...limits, maxAttempts: 100 };
      const outcomes = await settleResults(sql, scene.bench.boss, settlements, jobLimits, mode);
      const expected = ending.kind === 'completed' ? 'completed' : 'pending';
      assert.ok(outcomes.every((outcome) => outcome === expected));
    },
  };
}

function settlingOne(mode: TaskMode): HotStatement {
  return {
    name: `a settle of one result, ${mode.name}`,
    rows: one,
    async run(scene, sql) {
      const [settlement] = toSettlements(await takeBatch(scene, mode, 1), DONE);
      assert.ok(settlement);
      assert.equal(await settleResult(sql, scene.bench.boss, settlement, limits, mode), 'completed');
    },
  };
}

function beating(mode: TaskMode): HotStatement {
  return {
    name: `a heartbeat, ${mode.name}`,
    rows: batch,
    async run(scene, sql) {
      const held = await takeBatch(scene, mode);
      const jobs = held.map(({ job }) => job);
      assert.equal((await touchJobs(scene.bench.boss, sql, mode.queue, jobs)).size, scene.batch);
      await finish(scene, mode, held);
    },
  };
}

function checking(mode: TaskMode): HotStatement {
  return {
    name: `a look at the claims, ${mode.name}`,
    rows: batch,
    async run(scene, sql) {
      const held = await takeBatch(scene, mode);
      const claims = held.map(({ claim }) => claim);
      assert.equal((await checkClaims(sql, claims)).size, scene.batch);
      await finish(scene, mode, held);
    },
  };
}

function lookingAhead(mode: TaskMode): HotStatement {
  return {
    name: `the head of the queue, ${mode.name}`,
    rows: one,
    run: (_: Scene, sql) => inTransaction(sql, (tx) => headPriority(tx, mode.queue)),
  };
}

function toClaims(jobs: readonly Job<ExtractJob>[]) {
  const deliveries = jobs.map(({ id, data, retryCount }) => ({ ...data, jobId: id, delivery: retryCount }));
  return { deliveries, worker: 'test', maxAttempts: 100 };
}

function pair(jobs: readonly HeldClaim['job'][], claims: readonly ClaimOutcome[]): HeldClaim[] {
  return claims.map((claim, i) => {
    const job = jobs[i];
    assert.ok(job && claim.outcome === 'claimed');
    return { job, claim };
  });
}
