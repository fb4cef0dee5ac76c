import assert from 'node:assert/strict';
import type { Sql } from '../../../src/db.ts';
import { CHUNK } from './limits.ts';
import type { Step } from './step-rules.ts';
import { isOpen, type Tables } from './tables.ts';
import { broken, type Event, type EventOf, eventsOf, type World } from './world.ts';

/** What holds of fan-out tasks in every state, beside what holds of all tasks. */
export async function findBrokenFanoutRules(sql: Sql): Promise<{ rule: string; at: string }[]> {
  return await sql<{ rule: string; at: string }[]>`
    with counted as (
      select
        t.id,
        t.total_count,
        count(r.id) as added,
        count(distinct r.document_id) as documents,
        count(*) filter (where r.status = 'completed') as success,
        count(*) filter (where r.status = 'error') as failed,
        count(*) filter (where r.status = 'cancelled') as cancelled
      from asl_schema.extraction_task t
      left join asl_schema.extraction_result r on r.task_id = t.id
      group by t.id
    )
    select 'the tally says what the rows say' as rule, c.id::text || ' ' || row_to_json(y) || ' ' || row_to_json(c) as at
    from counted c
    left join asl_schema.fanout_tally y on y.task_id = c.id
    where (c.added, c.success, c.failed, c.cancelled)
      is distinct from (y.added_count, y.success_count, y.failed_count, y.cancelled_count)
    union all
    select 'expected is unknown, or what was added', task_id::text
    from asl_schema.fanout_tally
    where expected_count <> added_count
    union all
    select 'a task whose results are made has as many as its total says', c.id::text
    from counted c
    join asl_schema.fanout_tally y on y.task_id = c.id
    where y.expected_count is not null and c.total_count is distinct from c.added
    union all
    select 'a manager has come as far as there are results', c.id::text
    from counted c
    left join asl_schema.fanout_expansion e on e.task_id = c.id
    where e.next_position is distinct from c.added
    union all
    select 'a document has one result in a task', id::text from counted where documents <> added
    union all
    select 'a closed task is complete, or was ended before', t.id::text
    from asl_schema.extraction_task t
    join asl_schema.fanout_tally y on y.task_id = t.id
    where t.status = 'completed'
      and (y.success_count + y.failed_count + y.cancelled_count = y.expected_count) is not true
    union all
    select 'a task has one live manager job at most', data ->> 'taskId'
    from pgboss.job
    where name = 'asl_extract_manager' and state in ('created', 'retry', 'active')
    group by data ->> 'taskId'
    having count(*) > 1`;
}

/** What any step may do to the expansion of tasks; nothing in scatter mode, which has no tallies. */
export function checkExpansion({ world, events, before, after }: Step): void {
  for (const { taskId, expected, complete } of after.tallies.values()) {
    const task = after.tasks.get(taskId);
    if (task?.status !== 'processing') continue;
    if (complete && before.tallies.get(taskId)?.complete !== true && !mayHaveBeenPassedBy(events)) {
      broken('the last result closes its task, unless somebody else held it', { task, events });
    }
    const isExpanding = managersOf(after, taskId).some(({ live }) => live);
    if (expected === null && !isExpanding && !hasLostManager(world, after, taskId)) {
      broken('a task whose results are still to be made has a manager', { task, events });
    }
  }
  for (const { held } of eventsOf(events, 'giveUp')) {
    const failed = after.tasks.get(held.taskId)?.reason === 'expansion_failed';
    const earlier = before.tasks.get(held.taskId)?.reason === 'expansion_failed';
    if (failed && !earlier && after.tallies.get(held.taskId)?.expected !== null) {
      broken('a task that has all its results is not given up', { held, events });
    }
  }
  for (const { counts } of eventsOf(events, 'sweep')) {
    if (counts.repaired + counts.failed > 0) broken('a tally is never wrong, and no task is dead', { counts, events });
  }
  const expanded = new Set(eventsOf(events, 'expand').map(({ held }) => held.taskId));
  for (const row of after.results.values()) {
    if (after.tallies.has(row.taskId) && !before.results.has(row.id) && !expanded.has(row.taskId)) {
      broken('a result comes only from its manager', { row, events });
    }
  }
}

/** These hold the row of a task while they wait for its results, or look at it. */
function mayHaveBeenPassedBy(events: readonly Event[]): boolean {
  return (
    events.length > 1 &&
    events.some(({ event }) => /^(cancel|retry|delete|expire|round|expand|giveUp|sweep)$/.test(event))
  );
}

/** The run has taken its manager's job away, or let it lapse as often as it may, and no retry has brought another. */
export function hasLostManager(world: World, tables: Tables, taskId: string): boolean {
  const managers = managersOf(tables, taskId);
  if (managers.some(({ live }) => live)) return false;
  return world.destroyedManagers.has(taskId) || managers.some(({ spent }) => spent);
}

const managersOf = (tables: Tables, taskId: string) =>
  [...tables.managerJobs.values()].filter((job) => job.taskId === taskId);

/** What a manager's chunk is answered when nothing else was at work beside it. */
export function checkExpand(world: World, { held, outcome }: EventOf<'expand'>, before: Tables, after: Tables): void {
  const { taskId, job } = held;
  const task = before.tasks.get(taskId);
  const request = world.requests.get(taskId);
  const made = [...before.results.values()].filter((row) => row.taskId === taskId).length;
  const results = Math.min(CHUNK, (request?.documents ?? 0) - made);
  if (task?.status !== 'processing' || before.tallies.get(taskId)?.expected !== null) {
    assert.deepEqual(outcome, { outcome: 'ended' }, 'there is nothing to expand');
  } else {
    // Of a project a full chunk may have been the last one, or not.
    const isLast = request?.whole ? results < CHUNK : made + CHUNK >= (request?.documents ?? 0);
    assert.deepEqual(outcome, { outcome: isLast ? 'expanded' : 'added', results }, 'the next documents of the task');
  }
  if (outcome.outcome === 'added') return;
  const was = before.managerJobs.get(job.id);
  // Its own since before this step, or taken in it: the delivery after one that was given up has a number of its own.
  const taken = was?.state === 'created' || (was?.state === 'retry' && was.retryCount < job.retryCount);
  const owned = taken || (was?.state === 'active' && was.retryCount === job.retryCount);
  assert.equal(
    after.managerJobs.get(job.id)?.state,
    owned ? 'completed' : was?.state,
    'completes its own delivery only',
  );
}

/** Whether a retry opens its task, if that is closed: to put results back, or to have a manager make the rest of them. */
export function reopens({ taskId, resultIds, outcome }: EventOf<'retry'>, before: Tables): boolean {
  if (outcome.outcome !== 'retried') return false;
  return outcome.retried > 0 || (resultIds === undefined && before.tallies.get(taskId)?.expected === null);
}

/** Whether a task waits for something: for a result that is open, or, in fan-out mode, for its manager. */
export function isUnderWay(tables: Tables, taskId: string): boolean {
  const rows = [...tables.results.values()].filter((row) => row.taskId === taskId);
  return rows.some(isOpen) || tables.tallies.get(taskId)?.expected === null;
}
