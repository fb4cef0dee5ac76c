import type { Sql, Tx } from '../db.ts';
import { changeStage, usageColumns } from './grant-permits.ts';
import type { CallOutcome } from './outcome.ts';
import { outcomeColumns } from './record-outcome.ts';
import type { Stage } from './stage.ts';

/** A place in a stage's queue, and the right to use the stage once it is granted. */
export type Ticket = { ticketId: string; stage: Stage };

/**
 * Takes a place in the one queue that all processes have before a stage. Answers the tickets that were granted by it, which
 * may include the new one.
 *
 * Nobody waits here: a process hears of its later grants by NOTIFY or finds them itself, and holds no connection meanwhile.
 * The place is dated under the stage's lock, so the order of dates is the order of arrival.
 */
export async function requestPermit(
  sql: Sql,
  request: Ticket & { taskId: string; holder: string; ttlMs: number },
): Promise<string[]> {
  const { ticketId, stage, taskId, holder, ttlMs } = request;
  return await changeStage(sql, stage, (tx) => [
    tx`
      insert into asl_schema.permit (id, stage, task_id, holder, expires_at)
      values (
        ${ticketId}::uuid, ${stage}, ${taskId}::uuid, ${holder},
        clock_timestamp() + make_interval(secs => ${ttlMs / 1000})
      )
      on conflict on constraint permit_pkey do nothing`,
  ]);
}

/**
 * Gives a ticket back, granted or not, records how the call went, and lets the next in line in, on whichever process it
 * waits. Answers the tickets that were granted by it.
 *
 * The outcome counts before anyone is let in, so a server that asked for a wait is not called by the next. It counts only
 * with the ticket's row, so a second try after an answer that was lost changes nothing.
 *
 * @param tokens what the call used of the stage's budget
 */
export async function releasePermit(
  sql: Sql,
  release: Ticket & { outcome: CallOutcome; tokens: number },
): Promise<string[]> {
  const { ticketId, stage, outcome, tokens } = release;
  return await changeStage(sql, stage, (tx) => [
    tx`
      with released as (
        delete from asl_schema.permit
        where id = ${ticketId}::uuid
        returning stage
      )
      update asl_schema.stage s
      set ${usageColumns(tx, { requests: tx`0`, tokens: tx`${tokens}::bigint` })}
          ${outcomeColumns(tx, outcome)}
      from released
      where s.stage = released.stage`,
  ]);
}

/**
 * Puts off the expiry of a process' tickets, and answers what has become of them. A ticket that is missing has expired, and
 * somebody else may be inside in its place: who held it must stop using the stage.
 *
 * Takes no stage's lock, so that a process that froze with one can't make everybody's tickets expire. Rows are locked by id,
 * as in a grant. The expiry is checked again once the row is locked; see deleteExpired. Rides on the primary key.
 */
export async function renewPermits(
  sql: Sql | Tx,
  options: { ticketIds: readonly string[]; ttlMs: number },
): Promise<Map<string, 'waiting' | 'granted'>> {
  const rows = await sql<{ id: string; granted: boolean }[]>`
    with locked as (
      select id
      from asl_schema.permit
      where id = any(${options.ticketIds as string[]}::uuid[])
        and expires_at > clock_timestamp()
      order by id
      for update
    )
    update asl_schema.permit p
    set expires_at = clock_timestamp() + make_interval(secs => ${options.ttlMs / 1000})
    from locked
    where p.id = locked.id
    returning p.id, p.granted_at is not null as granted`;
  return new Map(rows.map(({ id, granted }) => [id, granted ? 'granted' : 'waiting']));
}

/** Which of a process' waiting tickets were granted meanwhile, oldest first, in case the word of it was lost. Rides on the primary key. */
export async function findGranted(sql: Sql, ticketIds: readonly string[]): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select id
    from asl_schema.permit
    where id = any(${ticketIds as string[]}::uuid[])
      and granted_at is not null
      and expires_at > clock_timestamp()
    order by id`;
  return rows.map(({ id }) => id);
}
