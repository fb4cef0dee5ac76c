import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';
import { connect } from '../../src/db.ts';
import { createLogger } from '../../src/log.ts';
import { createPermits } from '../../src/permits/permits.ts';

/**
 * A process that calls a server over and over with a few slots, each call with a permit; without, for comparison, where TTL_MS
 * is 0. Ends only by a signal.
 */
const { DATABASE_URL = '', SERVER_URL = '', HOLDER = '', SLOTS = '', TTL_MS = '' } = process.env;

const log = createLogger({ level: 'warn' });
const sql = connect(DATABASE_URL, { max: 5, applicationName: HOLDER });
const ttlMs = Number(TTL_MS);
const permits = ttlMs > 0 ? createPermits({ sql, holder: HOLDER, log, ttlMs, renewIntervalMs: ttlMs / 3 }) : undefined;
const { signal } = new AbortController();

async function call(stop: AbortSignal): Promise<void> {
  const answer = await fetch(`${SERVER_URL}/${HOLDER}`, { signal: stop });
  await answer.text();
}

async function work(): Promise<void> {
  const taskId = uuidv7();
  for (;;) {
    try {
      if (permits === undefined) await call(signal);
      else await permits.withPermit('llm', { taskId, signal, whileWaiting: (wait) => wait }, call);
    } catch (error) {
      log.warn('call failed', { error: String(error) });
      await sleep(100);
    }
  }
}

for (let i = 0; i < Number(SLOTS); i++) void work();
process.stdout.write('started\n');
