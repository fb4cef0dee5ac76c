import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, afterEach, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { openTestDatabase } from '../support/database.ts';
import { until } from '../support/waiting.ts';
import { resetStage } from './stage-queue.ts';

const PERMITS = 5;
const CALL_MS = 100;

const { sql, url } = await openTestDatabase(import.meta.url);

/** A stand-in that counts the calls it is serving; a caller that is killed leaves at once. */
const calls = { now: 0, most: 0, ended: 0, by: new Map<string, number>() };
const server = createServer((request, response) => {
  const caller = request.url?.slice(1) ?? '';
  calls.by.set(caller, (calls.by.get(caller) ?? 0) + 1);
  calls.now += 1;
  calls.most = Math.max(calls.most, calls.now);
  const timer = setTimeout(() => {
    // Counted out before the answer is sent: the caller may be back before `close` comes.
    calls.now -= 1;
    calls.ended += 1;
    response.end('done');
  }, CALL_MS);
  response.on('close', () => {
    if (response.writableEnded) return;
    clearTimeout(timer);
    calls.now -= 1;
  });
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const serverUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
after(() => {
  server.closeAllConnections();
  server.close();
});

const children = new Set<ChildProcess>();

async function startChild(holder: string, ttlMs: number, slots: number): Promise<ChildProcess> {
  const child = spawn(
    process.execPath,
    ['--import', 'tsx', fileURLToPath(new URL('permit-child.ts', import.meta.url))],
    {
      env: {
        ...process.env,
        DATABASE_URL: url,
        SERVER_URL: serverUrl,
        HOLDER: holder,
        TTL_MS: `${ttlMs}`,
        SLOTS: `${slots}`,
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  children.add(child);
  await once(child.stdout, 'data');
  return child;
}

/** @param slots of each process */
async function startChildren(ttlMs: number, slots = [4, 4, 4]): Promise<ChildProcess[]> {
  const holders = ['one', 'two', 'three'];
  const started = await Promise.all(holders.map((holder, i) => startChild(holder, ttlMs, slots[i] ?? 1)));
  await until('every process has made a call', () => calls.by.size === 3);
  return started;
}

/** Which share of what so many places can do at best is done, measured over a while. */
async function measureShare(windowMs: number): Promise<number> {
  const [endedBefore, startedAt] = [calls.ended, performance.now()];
  await sleep(windowMs);
  return (calls.ended - endedBefore) / ((PERMITS * (performance.now() - startedAt)) / CALL_MS);
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) {
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
  children.delete(child);
}

async function stopChildren(): Promise<void> {
  await Promise.all([...children].map(kill));
  await until('the server has noticed', () => calls.now === 0);
  Object.assign(calls, { most: 0, ended: 0, by: new Map() });
}

beforeEach(() => resetStage(sql, 'llm', PERMITS));
afterEach(stopChildren);

const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;

test('three processes together never exceed the limit, and use it nearly in full', { timeout: 120_000 }, async (t) => {
  // Against what the machine makes of the same calls from as many slots without permits, measured in turn: other work on the
  // machine comes and goes, and the best of a few rounds tells what the permits allow.
  let best = 0;
  for (let round = 0; round < 4 && best < 0.9; round++) {
    await startChildren(0, [2, 2, 1]);
    const without = await measureShare(2000);
    await stopChildren();
    await startChildren(15_000);
    const share = await measureShare(2000);
    assert.equal(calls.most, PERMITS);
    await stopChildren();
    best = Math.max(best, share / without);
    t.diagnostic(`of the ideal: ${percent(share)} with permits, ${percent(without)} without`);
  }
  assert.ok(best >= 0.8, `at best ${percent(best)} of what is done without permits`);
});

test('a process killed inside keeps its places until its tickets expire, and the limit holds throughout', async () => {
  const ttlMs = 2000;
  const [victim] = await startChildren(ttlMs);
  assert.ok(victim);
  const readDead = async (): Promise<number> => {
    const [row] = await sql<{ dead: number }[]>`
      select count(*)::int as dead
      from asl_schema.permit
      where stage = 'llm'
        and holder = 'one'
        and granted_at is not null`;
    return row?.dead ?? 0;
  };
  await until('the victim is inside', async () => (await readDead()) > 0);
  await kill(victim);
  const killedAt = performance.now();
  const dead = await readDead();
  // What the victim was about to get is given to it all the same; nobody else gets in for it until it expires.
  let mostBesides = 0;
  while (performance.now() - killedAt < ttlMs / 2) {
    await sleep(20);
    mostBesides = Math.max(mostBesides, calls.now);
  }
  assert.ok((await readDead()) >= dead);
  assert.ok(mostBesides <= PERMITS - dead, `${mostBesides} beside ${dead} dead`);
  await until('its tickets have expired', async () => (await readDead()) === 0);
  calls.by.clear();
  await until('the others use every place', () => calls.now === PERMITS && calls.by.size === 2);
  assert.equal(calls.most, PERMITS);
  assert.ok(!calls.by.has('one'));
});
