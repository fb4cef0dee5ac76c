import type postgres from 'postgres';
import { inTransaction, type Sql, type Tx } from '../db.ts';
import { FAILURES_TO_OPEN, type Stage } from './stage.ts';

type Statement = postgres.PendingQuery<postgres.Row[]>;

/**
 * Does what changes a stage or its queue, and then lets in whoever there is room for. Answers the ids of the tickets that
 * were granted, of all processes; every process is told of them.
 *
 * The stage's row is locked first, by everyone, and each statement after it sees all that was committed before: that is what
 * makes the limits exact. Everything up to the commit is sent at once, without waiting for an answer, so the lock is held for
 * as long as PostgreSQL needs, however busy this process is, or frozen. Lock order: stage, then tickets by id; the renewal of
 * tickets takes no stage.
 *
 * @param statements must not depend on one another's answers
 */
export async function changeStage(sql: Sql, stage: Stage, statements: (tx: Tx) => Statement[]): Promise<string[]> {
  return await inTransaction(sql, async (tx) => {
    const answers = await Promise.all([
      // Not `for update`: that would also wait for whoever only refers to the stage.
      tx`select from asl_schema.stage where stage = ${stage} for no key update`,
      ...statements(tx),
      grantPermits(tx, stage),
      // Sent with the rest, so that nobody waits for this process to say it; what it then commits is empty. After an error
      // it takes everything back.
      tx`commit and chain`,
    ]);
    return (answers.at(-2) ?? []).map(({ id }) => id as string);
  });
}

/**
 * Ends what has expired and lets in whoever there is room for: a holder has died, a pause has lapsed, a minute is over, a limit
 * was raised.
 */
export async function fillStage(sql: Sql, stage: Stage): Promise<string[]> {
  return await changeStage(sql, stage, (tx) => [deleteExpired(tx, stage)]);
}

/**
 * Ends the tickets of processes that have renewed them no more; at a poll, since it is rarely needed. Only a ticket that is
 * deleted makes room, and deleting needs its row's lock: a renewal that came first is holding it, and the ticket is passed by;
 * one that comes later finds the row gone, and its holder stops. So never do both believe that the ticket is theirs to go by.
 */
function deleteExpired(tx: Tx, stage: Stage): Statement {
  return tx`
    with expired as (
      select id
      from asl_schema.permit
      where stage = ${stage}
        and expires_at <= clock_timestamp()
      order by id
      for update skip locked
    )
    delete from asl_schema.permit p
    using expired
    where p.id = expired.id`;
}

/**
 * Next is the ticket of the task with the fewest granted tickets at the moment, then the oldest. Granting one after another
 * by that rule is the same as to order all who wait by how many of their task would be inside before them.
 *
 * Tickets are locked by id, as a renewal does, so the two can't deadlock. Rides on permit_granted_idx and permit_waiting_idx.
 * The word of each grant goes out with the commit.
 */
function grantPermits(tx: Tx, stage: Stage): Statement {
  return tx`
    with inside as (
      select task_id, count(*) as tickets
      from asl_schema.permit
      where stage = ${stage}
        and granted_at is not null
      group by task_id
    ),
    queue as (
      select
        p.id,
        p.requested_at,
        coalesce(inside.tickets, 0) + row_number() over (partition by p.task_id order by p.requested_at, p.id) as turn
      from asl_schema.permit p
      left join inside on inside.task_id = p.task_id
      where p.stage = ${stage}
        and p.granted_at is null
        and p.expires_at > clock_timestamp()
    ),
    locked as (
      select p.id
      from asl_schema.permit p
      where p.id in (
        select id
        from queue
        order by turn, requested_at, id
        limit (select greatest(0, ${room(tx)}) from asl_schema.stage s where s.stage = ${stage})
      )
      order by p.id
      for update
    ),
    granted as (
      update asl_schema.permit p
      set granted_at = clock_timestamp()
      from locked
      where p.id = locked.id
      returning p.id
    ),
    counted as (
      update asl_schema.stage s
      set ${usageColumns(tx, { requests: tx`(select count(*) from granted)`, tokens: tx`0` })}
      where s.stage = ${stage}
        and exists (select from granted)
    )
    select id, pg_notify('asl_permits', id::text) from granted`;
}

/**
 * The stages, of those given, in which somebody waits and may perhaps be let in. Takes no lock, so it is only a hint; it
 * spares all processes from queueing for the lock at every poll.
 */
export async function findStagesToFill(sql: Sql, stages: readonly Stage[]): Promise<Stage[]> {
  const rows = await sql<{ stage: Stage }[]>`
    select s.stage
    from asl_schema.stage s
    where s.stage = any(${stages as Stage[]}::text[])
      and exists (select from asl_schema.permit p where p.stage = s.stage and p.granted_at is null)
      and (
        ${room(sql)} > 0
        or exists (select from asl_schema.permit p where p.stage = s.stage and p.expires_at <= clock_timestamp())
      )`;
  return rows.map(({ stage }) => stage);
}

/**
 * How many may be let into stage `s` now: the least of what its limit, its circuit and its budgets leave (`least` passes over
 * a budget that is null). Whoever has a row that is granted is inside, whatever its expiry says: see deleteExpired.
 *
 * Requests are known when they are granted; tokens only afterwards, so the budget of tokens is overdrawn by what is inside.
 */
function room(sql: Sql | Tx) {
  return sql`
    case
      when s.paused_until > statement_timestamp() then 0
      else least(
        case when s.failures >= ${FAILURES_TO_OPEN} then least(s.permits, 1) else s.permits end
          - (select count(*) from asl_schema.permit i where i.stage = s.stage and i.granted_at is not null),
        s.requests_per_minute - case when ${windowIsOver(sql)} then 0 else s.window_requests end,
        case when s.window_tokens >= s.tokens_per_minute and not ${windowIsOver(sql)} then 0 end
      )
    end`;
}

/**
 * Budgets are counted in fixed windows: a minute begins with the first call that is let in or ends after the last one was over.
 * Two minutes that follow one another may so let twice the budget through within less than a minute.
 */
export function windowIsOver(sql: Sql | Tx) {
  return sql`(s.window_started_at <= statement_timestamp() - interval '1 minute')`;
}

/** Adds to what the running minute of stage `s` has used, or begins the next one with it; to stand in the `set` of an update. */
export function usageColumns(sql: Sql | Tx, used: { requests: postgres.Fragment; tokens: postgres.Fragment }) {
  const over = windowIsOver(sql);
  return sql`
          window_started_at = case when ${over} then statement_timestamp() else s.window_started_at end,
          window_requests = case when ${over} then 0 else s.window_requests end + ${used.requests},
          window_tokens = case when ${over} then 0 else s.window_tokens end + ${used.tokens}`;
}
