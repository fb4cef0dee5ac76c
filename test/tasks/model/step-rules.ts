import { checkExpansion, hasLostManager, reopens } from './fanout-rules.ts';
import { checkAttempts, checkJobs, checkPromises } from './history-rules.ts';
import { attemptKey, isOpen, type ResultRow, type Tables, type TaskRow } from './tables.ts';
import { broken, type Event, eventsOf, type World } from './world.ts';

/** One step of a run: what was answered, and the tables on both sides of it. */
export type Step = { world: World; events: Event[]; before: Tables; after: Tables };

/**
 * What any step may do to the tables, whichever operations were at work in it and in which order: a row changes only when
 * somebody was told so, what was promised is there, and what has ended stays.
 */
export function checkStep(step: Step): void {
  noteClaims(step);
  noteVerdicts(step);
  checkTasks(step);
  checkClosings(step);
  checkRefusals(step);
  checkResults(step);
  checkAttempts(step);
  checkPromises(step);
  checkJobs(step);
  checkExpansion(step);
}

function noteClaims({ world, events }: Step): void {
  const claims = eventsOf(events, 'claim').flatMap(({ fetched, outcome }) =>
    outcome.outcome === 'claimed' ? [{ fetched, claim: outcome }] : [],
  );
  for (const { fetched, claim } of claims.sort((a, b) => a.claim.attempt - b.claim.attempt)) {
    if (world.claims.has(attemptKey(claim))) broken('an attempt is given to one worker', claim);
    const { jobId, delivery } = fetched.delivery;
    const earlier = world.claims.get(attemptKey({ ...claim, attempt: claim.attempt - 1 }))?.delivery;
    if (earlier?.jobId === jobId && earlier.delivery >= delivery) {
      broken('a result is taken over only by a later delivery', { claim, earlier, delivery });
    }
    world.claims.set(attemptKey(claim), fetched);
  }
}

function noteVerdicts({ world, events }: Step): void {
  for (const settled of eventsOf(events, 'settle')) {
    if (settled.outcome === 'stale' || settled.outcome === 'refused') continue;
    const key = attemptKey(settled.held.claim);
    if (world.verdicts.has(key)) broken('an attempt is settled once', settled);
    world.verdicts.set(key, settled);
  }
}

function checkTasks(step: Step): void {
  const { events, before, after } = step;
  for (const [id, row] of before.tasks) {
    const now = after.tasks.get(id);
    if (now === undefined) {
      const deleted = eventsOf(events, 'delete').some((event) => event.taskId === id && event.outcome === 'deleted');
      const expired = eventsOf(events, 'expire').some((event) => event.deleted > 0);
      if (!deleted && !expired) broken('a task goes only when it is deleted', row);
    } else if (now.text !== row.text) {
      checkTaskChange(step, row, now);
    }
  }
  const created = new Set(eventsOf(events, 'create').map((event) => event.taskId));
  for (const id of after.tasks.keys()) {
    if (!before.tasks.has(id) && !created.has(id)) broken('a task comes only from a create', id);
  }
}

/** A retry is turned away only by a job that pg-boss has written anew at that very moment; nothing is lost by trying again. */
function checkRefusals({ events }: Step): void {
  const refused = eventsOf(events, 'retry').filter(({ outcome }) => outcome.outcome === 'refused');
  if (refused.length > 0 && eventsOf(events, 'lapse').length === 0) broken('a retry is not turned away', refused);
}

/** A round says how many tasks it closed: each of them is closed then, unless users came and went meanwhile. */
function checkClosings({ events, before, after }: Step): void {
  const said = eventsOf(events, 'round').reduce(
    (sum, { outcome }) => sum + ('closed' in outcome ? outcome.closed : 0),
    0,
  );
  const gone = (id: string): boolean => !after.tasks.has(id);
  const reopened = eventsOf(events, 'retry').some((event) => reopens(event, before));
  const created = eventsOf(events, 'create').length > 0;
  if (reopened || created || [...before.tasks.keys()].some(gone)) return;
  const closed = [...after.tasks.values()].filter(
    ({ id, status }) => status === 'completed' && before.tasks.get(id)?.status === 'processing',
  );
  // In fan-out mode whoever ends the last result closes its task, and a round only what nobody else has closed.
  const settlesClose = after.tallies.size > 0;
  if (settlesClose ? closed.length < said : closed.length !== said)
    broken('a task is closed once, by one', { closed, events });
}

function checkTaskChange({ world, events, before, after }: Step, row: TaskRow, now: TaskRow): void {
  if (row.total !== null && row.total !== now.total) broken('the total of a task never changes', { row, now });
  const retried = eventsOf(events, 'retry').some((event) => event.taskId === row.id && reopens(event, before));
  const aged = eventsOf(events, 'age').some((event) => event.taskId === row.id);
  const round = eventsOf(events, 'round').length > 0;
  const cancelled = eventsOf(events, 'cancel').some((event) => event.taskId === row.id);
  if (row.status !== 'processing' && !retried && !aged) broken('a closed task is never touched again', { row, now });
  const endings = eventsOf(events, 'settle').some(({ held }) => held.claim.taskId === row.id);
  const exhausted = eventsOf(events, 'claim').some(({ outcome }) => outcome.taskId === row.id);
  const expanded = eventsOf(events, 'expand').some(({ held }) => held.taskId === row.id);
  const swept = eventsOf(events, 'sweep').length > 0;
  const counted = after.tallies.has(row.id) && (endings || exhausted || expanded || swept);
  const givenUp = eventsOf(events, 'giveUp').some(({ held }) => held.taskId === row.id);
  const errors = [...after.results.values()].filter((r) => r.taskId === row.id && r.status === 'error').length;
  const allowed: Record<string, boolean> = {
    'processing null': retried || row.reason === null,
    // Its results have ended, and the close comes with a later round because this one's limit was used up.
    // Or its manager has come after the deadline, and goes on making errors of the rest.
    'processing deadline_exceeded': (round || expanded || row.reason === 'deadline_exceeded') && now.overdue,
    'completed null': round || counted || aged,
    'completed deadline_exceeded': ((round || counted) && now.overdue) || aged,
    'cancelled cancelled_by_user': cancelled || aged,
    'cancelled failure_threshold': (round && now.failureLimit !== null && errors > now.failureLimit) || aged,
    'failed expansion_failed': (round && hasLostManager(world, after, row.id)) || givenUp || aged,
  };
  if (!allowed[`${now.status} ${now.reason}`])
    broken('a task changes for the reason that it says', { row, now, events });
}

function checkResults(step: Step): void {
  const { world, events, before, after } = step;
  for (const [id, now] of after.results) {
    const row = before.results.get(id);
    if (row !== undefined && row.text !== now.text) checkResultChange(step, row, now);
    const late = now.code === 'deadline_exceeded' && after.tasks.get(now.taskId)?.overdue && now.attempt === 0;
    if (row === undefined && now.status !== 'pending' && !late && events.length < 2)
      broken('a result begins as pending, or, behind the deadline, as an error that says so', now);
    const claim = world.claims.get(attemptKey({ resultId: id, attempt: now.attempt }))?.delivery;
    if (now.status === 'extracting' && (claim?.jobId !== now.jobId || claim.delivery !== now.delivery)) {
      broken('a running result belongs to the delivery that claimed it, of its own job', { now, claim });
    }
    const spent = [...after.attempts.values()].filter(
      ({ resultId, attempt, outcome }) =>
        resultId === id && attempt > (world.countedFrom.get(id) ?? 0) && /^(error|retry|lost)$/.test(outcome ?? ''),
    );
    if (spent.length !== now.failedAttempts) broken('every spent attempt is counted, and no other', { now, spent });
  }
  for (const [id, row] of before.results) {
    if (!after.results.has(id) && after.tasks.has(row.taskId)) broken('a result goes only with its task', row);
  }
}

function checkResultChange(step: Step, row: ResultRow, now: ResultRow): void {
  const { world, events } = step;
  if (now.attempt < row.attempt) broken('attempts only grow', { row, now });
  if (row.status === 'completed') broken('a completed result never changes', { row, now });
  const settledBack = eventsOf(events, 'settle').some(
    ({ held, outcome }) => held.claim.resultId === row.id && outcome === 'pending',
  );
  const retried = now.jobId !== row.jobId && !settledBack;
  if (retried) {
    const asked = eventsOf(events, 'retry').some(
      ({ taskId, resultIds, outcome }) =>
        taskId === row.taskId && outcome.outcome === 'retried' && (resultIds?.includes(row.id) ?? true),
    );
    if (!asked) broken('another job comes only from a settle or a retry', { row, now });
    world.countedFrom.set(row.id, row.attempt);
  } else if (!isOpen(row)) {
    broken('what has ended stays, unless it is retried', { row, now });
  }
  if (row.status === 'extracting' && now.status === 'pending' && !settledBack && !retried) {
    broken('a result goes back only by its settle or a retry', { row, now });
  }
  if (!isOpen(now) && !isJustified(step, now))
    broken('a result ends for the reason that it says', { row, now, events });
}

function isJustified({ world, events, before, after }: Step, now: ResultRow): boolean {
  const key = attemptKey({ resultId: now.id, attempt: now.attempt });
  const task = after.tasks.get(now.taskId);
  const round = eventsOf(events, 'round').length > 0;
  const verdict = world.verdicts.get(key);
  if (now.status === 'completed') return verdict?.outcome === 'completed';
  if (now.status === 'cancelled') {
    const givenUp = eventsOf(events, 'giveUp').some(({ held }) => held.taskId === now.taskId);
    const cancelled = eventsOf(events, 'cancel').some(({ taskId }) => taskId === now.taskId);
    return cancelled || givenUp || (round && task !== undefined);
  }
  switch (now.code) {
    case 'error':
    case 'retry':
      return verdict?.outcome === 'error' && verdict.ending.kind === now.code;
    case 'extraction_stalled':
      return round && world.backdated.has(key);
    case 'job_lost':
      return round && after.jobs.get(now.jobId)?.live !== true;
    case 'deadline_exceeded':
      // A retry of other results may have lifted the deadline since.
      return round && (task?.overdue === true || before.tasks.get(now.taskId)?.overdue === true);
    case 'worker_lost':
      return eventsOf(events, 'claim').some(
        ({ outcome }) => outcome.outcome === 'exhausted' && outcome.resultId === now.id,
      );
    default:
      return false;
  }
}
