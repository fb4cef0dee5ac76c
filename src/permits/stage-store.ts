import type { Sql } from '../db.ts';
import { storableMessage, storableText } from '../storable.ts';
import { changeStage, windowIsOver } from './grant-permits.ts';
import { FAILURES_TO_OPEN, type Pause, type Stage, type StageState } from './stage.ts';

export type StageLimits = {
  permits?: number | undefined;
  /** Null: no budget. */
  requestsPerMinute?: number | null | undefined;
  tokensPerMinute?: number | null | undefined;
};

/**
 * Changes what is given of a stage's limits, for all processes and at once. A limit that is lowered throws nobody out: nobody
 * new gets in until there is room.
 *
 * @throws a PostgresError 23514 that names the constraint for a number that cannot be
 */
export async function setStage(sql: Sql, stage: Stage, limits: StageLimits): Promise<void> {
  const { permits, requestsPerMinute, tokensPerMinute } = limits;
  const columns = {
    ...(permits === undefined ? {} : { permits }),
    ...(requestsPerMinute === undefined ? {} : { requests_per_minute: requestsPerMinute }),
    ...(tokensPerMinute === undefined ? {} : { tokens_per_minute: tokensPerMinute }),
  };
  if (Object.keys(columns).length === 0) return;
  await changeStage(sql, stage, (tx) => [
    tx`update asl_schema.stage set ${tx(columns as Record<string, number | null>)} where stage = ${stage}`,
  ]);
}

/** Lets nobody in until a moment, or until someone acts. An operator's word: it takes the place of any pause before it. */
export async function pauseStage(sql: Sql, stage: Stage, pause: Partial<Pause> = {}): Promise<void> {
  const { until = null, code = 'paused_by_user', message = null } = pause;
  await changeStage(sql, stage, (tx) => [
    tx`
      update asl_schema.stage
      set paused_until = coalesce(${until}::timestamptz, 'infinity'),
          pause_code = ${storableText(code)},
          pause_message = ${message === null ? null : storableMessage(message)}
      where stage = ${stage}`,
  ]);
}

/** Ends any pause and closes the circuit; who waits is let in at once. */
export async function resumeStage(sql: Sql, stage: Stage): Promise<void> {
  await changeStage(sql, stage, (tx) => [
    tx`
      update asl_schema.stage
      set paused_until = null,
          pause_code = null,
          pause_message = null,
          failures = 0
      where stage = ${stage}`,
  ]);
}

type StageRow = Omit<StageState, 'pause'> & {
  paused: boolean;
  pausedUntil: Date | null;
  pauseCode: string;
  pauseMessage: string | null;
};

/** All stages at one instant. A few hundred tickets at most are counted, so it needs no index of its own. */
export async function readStages(sql: Sql): Promise<StageState[]> {
  const rows = await sql<StageRow[]>`
    select
      s.stage,
      s.permits,
      s.requests_per_minute as "requestsPerMinute",
      s.tokens_per_minute as "tokensPerMinute",
      case when ${windowIsOver(sql)} then 0 else s.window_requests end as "requestsUsed",
      case when ${windowIsOver(sql)} then 0 else s.window_tokens end::float8 as "tokensUsed",
      queue.granted,
      queue.waiting,
      coalesce(s.paused_until > statement_timestamp(), false) as paused,
      -- The driver's Date knows no infinity.
      case when isfinite(s.paused_until) then s.paused_until end as "pausedUntil",
      s.pause_code as "pauseCode",
      s.pause_message as "pauseMessage",
      s.failures,
      case
        when s.failures < ${FAILURES_TO_OPEN} then 'closed'
        when s.paused_until > statement_timestamp() then 'open'
        else 'probing'
      end as circuit
    from asl_schema.stage s
    cross join lateral (
      select
        count(*) filter (where p.granted_at is not null)::int as granted,
        count(*) filter (where p.granted_at is null)::int as waiting
      from asl_schema.permit p
      where p.stage = s.stage
        and p.expires_at > statement_timestamp()
    ) queue
    order by s.stage desc`;
  return rows.map(({ paused, pausedUntil: until, pauseCode: code, pauseMessage: message, ...state }) => ({
    ...state,
    pause: paused ? { until, code, message } : null,
  }));
}
