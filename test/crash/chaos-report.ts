import type { Fragment } from 'postgres';
import type { Chaos } from './chaos-faults.ts';
import { ANSWERS, endingOf } from './chaos-plan.ts';

type Told = { id: string; filename: string; status: string; code: string | null; attempt: number; run: string | null };

/** Whether each ended result tells what its own attempt did: the value of that very run, the error that the seed has for it. */
export async function wrongValues({ sql, plan }: Chaos): Promise<string[]> {
  const strays = await sql`
    select r.id, r.filename, r.attempt, r.extracted_data -> 'run' ->> 'value' as value, a.worker, run.*
    from asl_schema.extraction_result r
    join asl_schema.extraction_attempt a on a.task_id = r.task_id and a.result_id = r.id and a.attempt = r.attempt
    left join audit.run run on run.run = r.extracted_data -> 'run' ->> 'value'
    where r.status = 'completed'
      and (run.run is null
        or run.filename <> r.filename
        or run.pid <> split_part(a.worker, ':', 2)::int
        or run.at not between a.started_at and a.finished_at)`;
  const told = await sql<Told[]>`
    select id, filename, status, error_code as code, attempt
    from asl_schema.extraction_result
    where status = 'completed' or error_code in ('pdf_invalid', 'server_busy', 'extraction_timeout')`;
  const others = told.filter(({ filename, attempt, status, code }) => {
    const ending = endingOf(plan, filename, attempt);
    if (status === 'completed') return !ANSWERS.includes(ending);
    return ending !== (code === 'pdf_invalid' ? 'permanent' : code === 'server_busy' ? 'transient' : 'hang');
  });
  const unexpected = await sql`
    select id, filename, error_code, error_message
    from asl_schema.extraction_result
    where error_code not in (
      'pdf_invalid', 'server_busy', 'extraction_timeout', 'worker_lost', 'deadline_exceeded')`;
  const failed = await sql`select * from asl_schema.extraction_task where status = 'failed'`;
  return [
    ...say('a task failed, and nobody failed it', [...failed]),
    ...say('a value is not of the attempt that it is stored for', [...strays]),
    ...say('a result ended otherwise than its attempt', others),
    ...say('an error that nobody caused', [...unexpected]),
  ];
}

const say = (what: string, rows: readonly object[]): string[] =>
  rows.length === 0
    ? []
    : [
        `${what} (${rows.length}):\n${rows
          .slice(0, 3)
          .map((row) => `  ${JSON.stringify(row)}`)
          .join('\n')}`,
      ];

export async function printReport(chaos: Chaos, restMs: number | undefined): Promise<void> {
  const { sql, done, processes } = chaos;
  const counts = async (what: Fragment, table: Fragment): Promise<string> => {
    const rows = await sql<{ what: string; count: number }[]>`
      select ${what} as what, count(*) from ${table} group by 1 order by 1`;
    return rows.map((row) => `${row.what} ${row.count}`).join(', ');
  };
  const logs = processes.map((process) => process.log());
  const inLogs = (pattern: RegExp): number => logs.reduce((sum, log) => sum + (log.match(pattern)?.length ?? 0), 0);
  const takeovers = await takeoverTimes(chaos);
  const [runs] = await sql`
    select count(*)::int as all, count(*)::int - count(distinct (filename, attempt))::int as twice from audit.run`;
  const lines = {
    'done to it': [...done].map(([what, times]) => `${what} ${times}`).join(', '),
    processes: `${processes.length} one after the other`,
    results: await counts(sql`status || coalesce(' ' || error_code, '')`, sql`asl_schema.extraction_result`),
    attempts: await counts(sql`outcome`, sql`asl_schema.extraction_attempt`),
    runs: `${runs?.all}, of which ${runs?.twice} were begun by a process that had overslept its own attempt`,
    'late settles': `${inLogs(/"outcome":"stale"/g)} stale, ${inLogs(/claim lost/g)} claims found lost before that`,
    takeovers: `${takeovers.length}, the slowest ${Math.round(Math.max(0, ...takeovers))} ms after its fault`,
    rest: restMs === undefined ? 'none' : `${Math.round(restMs)} ms after the last fault`,
    'errors logged': `${inLogs(/"level":"error"/g)}`,
  };
  for (const [what, line] of Object.entries(lines)) process.stdout.write(`${what.padEnd(14)} ${line}\n`);
}

/** From the last thing that was done to a worker to the moment when its result was with another. */
async function takeoverTimes({ sql, hits }: Chaos): Promise<number[]> {
  const lost = await sql<{ pid: number; atMs: number }[]>`
    select split_part(a.worker, ':', 2)::int as pid, extract(epoch from a.finished_at)::float8 * 1000 as "atMs"
    from asl_schema.extraction_attempt a
    where a.outcome = 'lost'`;
  return lost.flatMap(({ pid, atMs }) => {
    const hit = hits.findLast((one) => one.pid === pid && one.atMs < atMs);
    return hit === undefined ? [] : [atMs - hit.atMs];
  });
}
