import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../../src/db.ts';
import { ExtractionError, permanent } from '../../src/errors.ts';
import type { ExtractionEngine } from '../../src/extraction/engine.ts';
import { hang } from '../support/engines.ts';
import { endingOf, makePlan } from './chaos-plan.ts';
import { answerOf } from './stand-in-engine.ts';

/**
 * An engine whose every attempt ends as the seed has it. It writes each run into the database before anything else, on a
 * connection that no fault is aimed at, so that the runs of a killed process are known too.
 */
export function chaosEngine(databaseUrl: string, seed: string): ExtractionEngine {
  const plan = makePlan(seed);
  const sql = connect(databaseUrl, { max: 2, applicationName: 'chaos' });
  let runs = 0;
  return {
    async extract({ filename, signal }) {
      runs += 1;
      const run = `${process.pid}-${runs}`;
      const [row] = await sql<{ attempt: number }[]>`
        insert into audit.run (run, pid, filename, attempt)
        select ${run}, ${process.pid}, filename, attempt
        from asl_schema.extraction_result
        where filename = ${filename}
        returning attempt`;
      const attempt = row?.attempt ?? 0;
      const ms = (from: number, to: number) => plan.number(from, to, 'ms', filename, attempt);
      const ending = endingOf(plan, filename, attempt);
      switch (ending) {
        case 'answer':
          await sleep(ms(0, 100));
          return answerOf(run);
        case 'wait':
          await sleep(ms(200, 1500), undefined, { signal });
          return answerOf(run);
        case 'linger':
          await sleep(ms(200, 2500));
          return answerOf(run);
        case 'permanent':
          throw permanent('pdf_invalid', 'The file is not a PDF.');
        case 'transient':
          await sleep(ms(0, 500));
          throw new ExtractionError('transient', 'server_busy', 'Busy.');
        case 'defer':
          throw new ExtractionError('defer', 'rate_limited', 'Later.', { retryAfterMs: Math.round(ms(0, 1000)) });
        case 'hang':
          return await hang(signal);
      }
    },
    async close() {
      await sql.end({ timeout: 1 });
    },
  };
}
