import assert from 'node:assert/strict';
import type { HeldClaim } from '../../support/fixtures.ts';
import { checkExpand, isUnderWay, reopens } from './fanout-rules.ts';
import { MAX_ATTEMPTS } from './limits.ts';
import type { Step } from './step-rules.ts';
import { attemptKey, isOpen, type ResultRow, type Tables } from './tables.ts';
import type { Event, EventOf, World } from './world.ts';

/** From this limit on a round sees everything that a run can have made. */
export const FULL_ROUND = 1000;

/** What an operation must answer, and leave, when nothing else was at work beside it. */
export function checkAnswers({ world, events, before, after }: Step): void {
  for (const event of events) checkAnswer(world, event, before, after);
}

function checkAnswer(world: World, event: Event, before: Tables, after: Tables): void {
  switch (event.event) {
    case 'create':
      checkCreate(world, event, before);
      return;
    case 'expand':
      checkExpand(world, event, before, after);
      return;
    case 'claim': {
      const { outcome, fetched } = event;
      const { resultId, jobId, delivery } = fetched.delivery;
      const row = before.results.get(resultId);
      const expected = row?.jobId === jobId ? expectedClaim(row, delivery) : 'phantom';
      assert.equal(outcome.outcome, expected, 'what a delivery brings');
      if (outcome.outcome === 'claimed') assert.equal(outcome.attempt, (row?.attempt ?? 0) + 1, 'the next attempt');
      return;
    }
    case 'settle':
      checkSettle(event, before, after);
      return;
    case 'check': {
      const holding = event.claims.filter(({ claim }) => owns(before, claim));
      assert.deepEqual(event.holding, new Set(holding.map(({ claim }) => claim.resultId)), 'claims that still hold');
      return;
    }
    case 'beat': {
      const alive = event.held.filter((held) => holdsJob(before, held));
      assert.deepEqual(event.alive, new Set(alive.map(({ job }) => job.id)), 'jobs that are still held');
      return;
    }
    case 'cancel': {
      const task = before.tasks.get(event.taskId);
      const ended = rowsOf(before, event.taskId).filter(isOpen).length;
      if (task === undefined) assert.deepEqual(event.outcome, { outcome: 'unknown' });
      else if (task.status === 'processing') assert.deepEqual(event.outcome, { outcome: 'cancelled', ended });
      else if (task.status === 'cancelled') assert.deepEqual(event.outcome, { outcome: 'cancelled', ended: 0 });
      else assert.deepEqual(event.outcome, { outcome: 'closed', status: task.status });
      return;
    }
    case 'retry':
      checkRetry(event, before, after);
      return;
    case 'delete': {
      const status = before.tasks.get(event.taskId)?.status;
      const expected = status === undefined ? 'unknown' : status === 'processing' ? 'open' : 'deleted';
      assert.equal(event.outcome, expected, 'what a deletion answers');
      assert.equal(after.tasks.has(event.taskId), expected === 'open', 'what a deletion leaves');
      return;
    }
    case 'expire': {
      const expired = [...before.tasks.values()].filter((task) => task.expired).sort((a, b) => a.endedAt - b.endedAt);
      let results = 0;
      const gone = expired.filter(({ total }, i) => {
        results += total ?? 0;
        return i === 0 || results <= event.maxResults;
      });
      assert.equal(event.deleted, gone.length, 'how many expired tasks a call takes');
      assert.deepEqual(
        [...before.tasks.keys()].filter((id) => !after.tasks.has(id)),
        gone.map((task) => task.id).sort(),
        'the oldest of the expired tasks go',
      );
      return;
    }
    case 'round':
      checkRound(world, event, after);
      return;
    case 'lapse':
      assert.match(
        (after.jobs.get(event.jobId) ?? after.managerJobs.get(event.jobId))?.state ?? '',
        /^(retry|failed)$/,
        'a silent delivery is given up',
      );
      return;
    default:
      return;
  }
}

function checkCreate(world: World, { request, outcome, taskId }: EventOf<'create'>, before: Tables): void {
  const earlier = [...before.tasks.keys()].find(
    (id) => request.key !== null && world.requests.get(id)?.key === request.key,
  );
  if (earlier === undefined) {
    const passed = request.limits.deadlineAt !== null && request.limits.deadlineAt.getTime() < Date.now();
    assert.equal(outcome, passed ? 'deadline_passed' : 'created', 'a new key makes a task');
    return;
  }
  const same = JSON.stringify({ ...world.requests.get(earlier) }) === JSON.stringify({ ...request });
  assert.deepEqual([outcome, taskId], same ? ['replayed', earlier] : ['key_conflict', undefined], 'a known key');
}

function expectedClaim(row: ResultRow, delivery: number): 'claimed' | 'exhausted' | 'phantom' {
  if (row.status === 'pending') return 'claimed';
  if (row.status !== 'extracting' || row.delivery === null || row.delivery >= delivery) return 'phantom';
  return row.failedAttempts + 1 >= MAX_ATTEMPTS ? 'exhausted' : 'claimed';
}

function checkSettle({ held, ending, outcome }: EventOf<'settle'>, before: Tables, after: Tables): void {
  const { resultId } = held.claim;
  const row = before.results.get(resultId);
  const owned = owns(before, held.claim);
  const goesBack =
    ending.kind === 'retry' ? (row?.failedAttempts ?? 0) + 1 < MAX_ATTEMPTS : /deferred|released/.test(ending.kind);
  const holding = holdsJob(before, held);
  const givenUp = before.jobs.get(held.job.id)?.live === true && !holding;
  const ended = ending.kind === 'completed' ? 'completed' : 'error';
  const expected = !owned ? 'stale' : !goesBack ? ended : givenUp ? 'refused' : 'pending';
  assert.equal(outcome, expected, 'what a settle is told');
  if (expected === 'stale' || expected === 'refused') {
    assert.equal(after.results.get(resultId)?.text, row?.text, 'a settle that counts for nothing changes nothing');
  }
  if (holding) assert.equal(after.jobs.get(held.job.id)?.state, 'completed', 'a settle completes its own delivery');
  else assert.deepEqual(after.jobs.get(held.job.id), before.jobs.get(held.job.id), 'and no other');
}

function checkRetry(event: EventOf<'retry'>, before: Tables, after: Tables): void {
  const { taskId, resultIds, limits, outcome } = event;
  if (!before.tasks.has(taskId)) {
    assert.deepEqual(outcome, { outcome: 'unknown' });
    return;
  }
  const rows = rowsOf(before, taskId);
  const strangers = resultIds?.filter((id) => !rows.some((row) => row.id === id)) ?? [];
  if (strangers.length > 0) {
    assert.deepEqual(outcome, { outcome: 'unknown_results', count: strangers.length, resultIds: strangers });
    return;
  }
  const retried = rows.filter(({ id, status }) => /error|cancelled/.test(status) && (resultIds?.includes(id) ?? true));
  assert.deepEqual(outcome, { outcome: 'retried', retried: retried.length }, 'what a retry puts back');
  for (const { id, attempt } of retried) {
    const now = after.results.get(id);
    assert.deepEqual([now?.status, now?.attempt, now?.failedAttempts, now?.code], ['pending', attempt, 0, null]);
    assert.equal(after.jobs.get(now?.jobId ?? '')?.state, 'created', 'with a fresh job');
  }
  const now = after.tasks.get(taskId);
  const resumed = before.tasks.get(taskId)?.status !== 'processing' && reopens(event, before);
  if ((retried.length === 0 && !resumed) || now === undefined) return;
  const { deadlineAt, maxFailedCount, maxFailedPercent } = limits;
  const allowed = [
    maxFailedCount,
    maxFailedPercent === null || now.total === null ? null : Math.floor((now.total * maxFailedPercent) / 100),
  ];
  const failureLimit = allowed.every((one) => one === null) ? null : Math.min(...allowed.map((one) => one ?? Infinity));
  const overdue = deadlineAt !== null && deadlineAt.getTime() < Date.now();
  assert.deepEqual(
    { status: now.status, reason: now.reason, overdue: now.overdue, failureLimit: now.failureLimit },
    { status: 'processing', reason: null, overdue, failureLimit },
    'the task is open again, under new limits',
  );
}

function checkRound(world: World, { limit, outcome }: EventOf<'round'>, after: Tables): void {
  assert.equal(outcome.outcome, 'swept');
  if (limit < FULL_ROUND) return;
  for (const task of after.tasks.values()) {
    if (task.status !== 'processing') continue;
    const rows = rowsOf(after, task.id);
    const errors = rows.filter((row) => row.status === 'error').length;
    assert.ok(isUnderWay(after, task.id), 'a task without open results is closed by the next round');
    assert.ok(!task.overdue || !rows.some(isOpen), 'a task is stopped at its deadline');
    assert.ok(task.failureLimit === null || errors <= task.failureLimit, 'a task is stopped beyond its failure limit');
    for (const row of rows.filter(isOpen)) {
      const key = attemptKey({ resultId: row.id, attempt: row.attempt });
      if (row.status === 'extracting') assert.ok(!world.backdated.has(key), 'a stalled result is swept');
      if (after.jobs.get(row.jobId)?.live === true) continue;
      // The round may have begun in the middle, where one with a small limit had stopped; the next one begins anew.
      const rounds = (world.roundsWithoutJob.get(row.jobId) ?? 0) + 1;
      world.roundsWithoutJob.set(row.jobId, rounds);
      assert.ok(row.status === 'pending' && rounds < 2, 'a result whose job is gone ends as an error');
    }
  }
}

function rowsOf(tables: Tables, taskId: string): ResultRow[] {
  return [...tables.results.values()].filter((row) => row.taskId === taskId);
}

function owns(tables: Tables, { resultId, attempt }: HeldClaim['claim']): boolean {
  const row = tables.results.get(resultId);
  return row?.status === 'extracting' && row.attempt === attempt;
}

function holdsJob(tables: Tables, { job }: HeldClaim): boolean {
  const now = tables.jobs.get(job.id);
  return now?.state === 'active' && now.retryCount === job.retryCount;
}
