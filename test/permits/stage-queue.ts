import { v7 as uuidv7 } from 'uuid';
import type { Sql } from '../../src/db.ts';
import type { CallOutcome } from '../../src/permits/outcome.ts';
import { releasePermit, requestPermit } from '../../src/permits/permit-store.ts';
import type { Stage } from '../../src/permits/stage.ts';

export const TASK = '0193a000-0000-7000-8000-00000000000a';
export const OTHER_TASK = '0193a000-0000-7000-8000-00000000000b';

/** Takes a place in a stage's queue; answers the ticket's id. */
export async function request(sql: Sql, stage: Stage, options: { taskId?: string; holder?: string } = {}) {
  const { taskId = TASK, holder = 'one' } = options;
  const ticketId = uuidv7();
  await requestPermit(sql, { ticketId, stage, taskId, holder, ttlMs: 15_000 });
  return ticketId;
}

/** Gives a ticket back; answers who was let in by that. */
export async function release(
  sql: Sql,
  stage: Stage,
  ticketId: string,
  outcome: CallOutcome = { kind: 'none' },
  tokens = 0,
): Promise<string[]> {
  return await releasePermit(sql, { ticketId, stage, outcome, tokens });
}

/** The tickets inside a stage and those before it, each in the order of arrival. */
export async function readQueue(sql: Sql, stage: Stage): Promise<{ inside: string[]; waiting: string[] }> {
  const rows = await sql<{ id: string; inside: boolean }[]>`
    select id, granted_at is not null as inside
    from asl_schema.permit
    where stage = ${stage}
    order by requested_at, id`;
  const ids = (inside: boolean): string[] => rows.filter((row) => row.inside === inside).map(({ id }) => id);
  return { inside: ids(true), waiting: ids(false) };
}

/** An empty queue before a stage with these limits, as a fresh database has it. */
export async function resetStage(sql: Sql, stage: Stage, permits: number): Promise<void> {
  await sql`delete from asl_schema.permit where stage = ${stage}`;
  await sql`
    update asl_schema.stage
    set permits = ${permits},
        requests_per_minute = null,
        tokens_per_minute = null,
        window_started_at = now(),
        window_requests = 0,
        window_tokens = 0,
        paused_until = null,
        pause_code = null,
        pause_message = null,
        failures = 0
    where stage = ${stage}`;
}

export async function readStage(sql: Sql, stage: Stage) {
  const [row] = await sql<{ failures: number; code: string | null; message: string | null; pauseSeconds: number }[]>`
    select
      failures,
      pause_code as code,
      pause_message as message,
      extract(epoch from paused_until - now())::float8 as "pauseSeconds"
    from asl_schema.stage
    where stage = ${stage}`;
  if (row === undefined) throw new Error(`no stage ${stage}`);
  return row;
}
