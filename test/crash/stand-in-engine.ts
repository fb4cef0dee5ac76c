import { setTimeout as sleep } from 'node:timers/promises';
import { ExtractionError, permanent } from '../../src/errors.ts';
import type { ExtractionEngine, ExtractionOutput, FieldValue } from '../../src/extraction/engine.ts';
import { hang } from '../support/engines.ts';

/**
 * An engine that takes its papers by their names: `paper.permanent.txt` is unreadable, `paper.transient.txt` fails every
 * time, `paper.hold.txt` never ends, `paper.wait-500.txt` takes half a second; any other does what `kind` says.
 *
 * @param kind `answer`, at once; `wait:MS`, after a time; `linger:MS`, the same and deaf to its signal; `hold`, never;
 *   `transient`, an error worth another try; `fail-in:MS`, the same after a time
 * @param onRun told of every run before it does anything, with a name of its own, which is also the value it answers
 */
export function standInEngine(kind: string, onRun: (filename: string, run: string) => void): ExtractionEngine {
  let runs = 0;
  const [how = 'answer', ms = '0'] = kind.split(':');
  return {
    async extract({ filename, signal }) {
      runs += 1;
      const run = `${process.pid}-${runs}`;
      onRun(filename, run);
      if (filename.includes('.permanent.')) throw permanent('pdf_invalid', 'The file is not a PDF.');
      if (filename.includes('.transient.')) throw new ExtractionError('transient', 'server_busy', 'Busy.');
      const wait = /\.wait-(\d+)\./.exec(filename)?.[1];
      if (wait !== undefined) {
        await sleep(Number(wait), undefined, { signal });
        return answerOf(run);
      }
      if (how === 'hold' || filename.includes('.hold.')) return await hang(signal);
      if (how === 'wait') await sleep(Number(ms), undefined, { signal });
      if (how === 'linger' || how === 'fail-in') await sleep(Number(ms));
      if (how === 'transient' || how === 'fail-in') throw new ExtractionError('transient', 'server_busy', 'Busy.');
      return answerOf(run);
    },
    async close() {},
  };
}

/** What a run answers: its own name, so that a stored value tells whose it is. */
export function answerOf(run: string): ExtractionOutput {
  const place = { quote: run, page: 1, start: 0, end: run.length, method: 'stand-in', confidence: 1 };
  return { data: { run: { value: run, status: 'found', ...place } satisfies FieldValue } };
}
