import type { Sql } from '../db.ts';
import type { Claim } from './claim-results.ts';

/**
 * Which of a worker's claims still hold, by result id. The others were cancelled, stopped, swept or taken over meanwhile:
 * whatever their extractions bring will be stale. Rides on the primary key, and says so to the planner: the claims are each looked
 * up (`offset 0`), and not by their status (`is true`), which would go through all that is extracted of a task for every claim.
 */
export async function checkClaims(
  sql: Sql,
  claims: readonly Pick<Claim, 'taskId' | 'resultId' | 'attempt'>[],
): Promise<Set<string>> {
  const holding = await sql<{ resultId: string }[]>`
    select r.id as "resultId"
    from unnest(
      ${claims.map((claim) => claim.taskId)}::uuid[],
      ${claims.map((claim) => claim.resultId)}::uuid[],
      ${claims.map((claim) => claim.attempt)}::int[]
    ) as claimed (task_id, result_id, attempt)
    cross join lateral (
      select r.id
      from asl_schema.extraction_result r
      where r.task_id = claimed.task_id
        and r.id = claimed.result_id
        and r.attempt = claimed.attempt
        and (r.status = 'extracting') is true
      offset 0
    ) r`;
  return new Set(holding.map((row) => row.resultId));
}
