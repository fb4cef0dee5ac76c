import type postgres from 'postgres';
import type { Sql, Tx } from '../db.ts';
import type { CallOutcome } from './outcome.ts';
import { CIRCUIT_PAUSE_MAX_SECONDS, CIRCUIT_PAUSE_SECONDS, FAILURES_TO_OPEN } from './stage.ts';

/**
 * What an outcome changes in the row of stage `s`, to stand after other columns in the `set` of an update under its lock.
 *
 * The circuit is open from ten failures in a row on. Its pause doubles with each that follows, which can only be a probe's:
 * those that were inside when it opened, and fail during the pause, count no more. Any success closes it.
 */
export function outcomeColumns(sql: Sql | Tx, outcome: CallOutcome) {
  switch (outcome.kind) {
    case 'none':
      return sql``;
    case 'success':
      // A pause that a server asked for, or an operator, is not lifted by a call that was inside before.
      return sql`,
          failures = 0,
          paused_until = case when s.pause_code = 'circuit_open' then null else s.paused_until end,
          pause_message = case when s.pause_code = 'circuit_open' then null else s.pause_message end,
          pause_code = nullif(s.pause_code, 'circuit_open')`;
    case 'failure': {
      const failures = sql`
        case
          when s.failures >= ${FAILURES_TO_OPEN} and s.paused_until > statement_timestamp() then s.failures
          else s.failures + 1
        end`;
      const until = sql`
        case
          when s.failures >= ${FAILURES_TO_OPEN} and s.paused_until > statement_timestamp() then null
          when s.failures + 1 >= ${FAILURES_TO_OPEN}
            then statement_timestamp() + interval '1 s' * least(
              ${CIRCUIT_PAUSE_MAX_SECONDS}::float8,
              ${CIRCUIT_PAUSE_SECONDS}::float8 * 2 ^ least(20, s.failures + 1 - ${FAILURES_TO_OPEN})
            )
        end`;
      const message = `${FAILURES_TO_OPEN} calls or more have failed in a row, the last with ${outcome.code}.`;
      return sql`,
          failures = ${failures}
          ${pauseColumns(sql, until, 'circuit_open', message)}`;
    }
    case 'pause': {
      const until =
        outcome.pauseMs === null
          ? sql`timestamptz 'infinity'`
          : sql`(statement_timestamp() + ${outcome.pauseMs / 1000}::float8 * interval '1 s')`;
      return pauseColumns(sql, until, outcome.code, outcome.message);
    }
  }
}

/** Never makes a pause shorter; what is said of it is said by who asked for the longest. No pause where `until` is null. */
function pauseColumns(sql: Sql | Tx, until: postgres.Fragment, code: string, message: string) {
  const longer = sql`${until} > coalesce(s.paused_until, '-infinity')`;
  return sql`,
          paused_until = greatest(s.paused_until, ${until}),
          pause_code = case when ${longer} then ${code} else s.pause_code end,
          pause_message = case when ${longer} then ${message} else s.pause_message end`;
}
