import type { Step } from './step-rules.ts';
import { type AttemptRow, attemptKey, isOpen } from './tables.ts';
import { broken, eventsOf } from './world.ts';

/** The history of a result: an attempt begins with a claim, ends as its worker was told, and stays. */
export function checkAttempts({ world, events, before, after }: Step): void {
  const round = eventsOf(events, 'round').length > 0;
  const isTold = (now: AttemptRow): boolean => {
    const verdict = world.verdicts.get(attemptKey(now));
    if (verdict !== undefined) {
      return now.outcome === (verdict.outcome === 'pending' ? verdict.ending.kind : verdict.outcome);
    }
    if (now.outcome === 'cancelled')
      return round || eventsOf(events, 'cancel').length + eventsOf(events, 'giveUp').length > 0;
    const takenOver = eventsOf(events, 'claim').some(
      ({ outcome }) => /claimed|exhausted/.test(outcome.outcome) && outcome.resultId === now.resultId,
    );
    return now.outcome === null || (now.outcome === 'lost' && (round || takenOver));
  };
  for (const [key, now] of after.attempts) {
    const row = before.attempts.get(key);
    if (!world.claims.has(key)) broken('an attempt comes only from a claim', now);
    if (row !== undefined && row.outcome !== null && row.text !== now.text)
      broken('history never changes', { row, now });
    if (row?.text !== now.text && !isTold(now)) broken('an attempt ends as its worker was told', { row, now, events });
  }
}

/** What a worker was told stays true, whatever comes after it. */
export function checkPromises({ world, after }: Step): void {
  for (const { held, ending, outcome } of world.verdicts.values()) {
    const { taskId, resultId, attempt } = held.claim;
    const now = after.results.get(resultId);
    if (!after.tasks.has(taskId)) continue;
    const mark = ending.kind === 'completed' ? (ending.data as { mark: string }).mark : null;
    if (outcome === 'completed' && (now?.status !== 'completed' || now.attempt !== attempt || now.mark !== mark)) {
      broken('a settle that was told `completed` is what stays', { held, now });
    }
  }
}

/** An open result has a live job, and what has ended has none, but for the few that may outlive theirs as phantoms. */
export function checkJobs({ world, events, before, after }: Step): void {
  for (const row of after.results.values()) {
    const job = after.jobs.get(row.jobId);
    if (isOpen(row) && job?.live !== true && !world.destroyed.has(row.jobId) && job?.spent !== true) {
      broken('an open result has a live job', { row, job });
    }
  }
  for (const job of after.jobs.values()) {
    const row = after.results.get(job.resultId) ?? before.results.get(job.resultId);
    if (!job.live || world.leftovers.has(job.id) || (row && isOpen(row) && after.results.has(row.id))) continue;
    const key = row === undefined ? '' : attemptKey({ resultId: row.id, attempt: row.attempt });
    const delivery = world.claims.get(key)?.delivery.delivery ?? 0;
    const givenUp = world.verdicts.has(key) && (job.state === 'retry' || job.retryCount > delivery);
    const swept = row?.code === 'worker_lost' || world.backdated.has(key);
    // pg-boss gives a delivery up by writing its job anew, and a deletion at that very moment sees neither the old nor the new.
    const rewritten = eventsOf(events, 'lapse').some(({ jobId }) => jobId === job.id);
    if (row?.jobId !== job.id || !(givenUp || swept || rewritten))
      broken('no live job outlives its result', { row, job });
    world.leftovers.add(job.id);
  }
}
