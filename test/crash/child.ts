import { writeSync } from 'node:fs';
import { loadConfig } from '../../src/config.ts';
import { startService } from '../../src/service.ts';
import { chaosEngine } from './chaos-engine.ts';
import { standInEngine } from './stand-in-engine.ts';

/**
 * The service as a process of its own, with a stand-in for the engine and, if its environment says so, a moment at which it
 * kills or stops itself. What it does it tells on standard output, a JSON object a line, written at once: also the last word before
 * a SIGKILL arrives.
 *
 * - `ENGINE`    how the stand-in behaves; `chaos`: by the plan of `CHAOS_SEED`
 * - `CRASH_AT`  a KillPlan
 */
export type KillPlan = {
  /** Dies just before a statement that holds this text is sent, or inside an extraction. */
  before: string | { extraction: true };
  /** Only after a statement with this text: the proof that the work had begun. */
  after?: string;
  /** Dies a moment after the statement was sent, before its answer can arrive. */
  sent?: boolean;
  /** What it does to itself. Default SIGKILL; after SIGSTOP and SIGCONT it goes on where it was. */
  by?: 'SIGKILL' | 'SIGSTOP';
};

/** A line of a child's standard output. */
export type Word =
  | { event: 'started'; url: string }
  | { event: 'run'; filename: string; run: string }
  | { event: 'killed'; atMs: number };

const say = (word: Word): void => void writeSync(1, `${JSON.stringify(word)}\n`);

function die(by: NodeJS.Signals = 'SIGKILL'): void {
  say({ event: 'killed', atMs: Date.now() });
  process.kill(process.pid, by);
}

function killer(plan: KillPlan): (text: string) => void {
  let armed = plan.after === undefined;
  let dying = false;
  return (text) => {
    if (dying) return;
    if (!armed) {
      armed = text.includes(plan.after ?? '');
      return;
    }
    if (typeof plan.before !== 'string' || !text.includes(plan.before)) return;
    dying = true;
    if (!plan.sent) return die(plan.by);
    // The driver gathers small messages until the end of this turn of the event loop.
    setImmediate(() => setImmediate(() => die(plan.by)));
  };
}

const plan = process.env.CRASH_AT ? (JSON.parse(process.env.CRASH_AT) as KillPlan) : undefined;
const config = loadConfig();
const { ENGINE = 'answer', CHAOS_SEED = '' } = process.env;
const engine =
  ENGINE === 'chaos'
    ? chaosEngine(config.databaseUrl, CHAOS_SEED)
    : standInEngine(ENGINE, (filename, run) => {
        say({ event: 'run', filename, run });
        if (typeof plan?.before === 'object') die(plan.by);
      });
const service = await startService(config, { engine, ...(plan ? { onStatement: killer(plan) } : {}) });
say({ event: 'started', url: service.url ?? '' });

let stopping = false;
process.on('SIGTERM', () => {
  if (stopping) process.exit(1);
  stopping = true;
  service.stop().then(
    () => process.exit(0),
    (error: unknown) => {
      process.stderr.write(`stopping failed: ${error}\n`);
      process.exit(1);
    },
  );
});
