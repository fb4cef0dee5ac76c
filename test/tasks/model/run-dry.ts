import assert from 'node:assert/strict';
import { NIL } from 'uuid';
import { MANAGER_QUEUE, type ResultQueue } from '../../../src/queue.ts';
import { lapseHeartbeat } from '../../support/fixtures.ts';
import { Alone, expandAll, type Real, step } from './commands.ts';
import { FULL_ROUND } from './expectations.ts';
import { finish } from './scenes.ts';
import type { World } from './world.ts';

/** The second is for a round that began in the middle, where one with a small limit had stopped. */
const PASSES = 2;

/**
 * Lets everything run: one worker that never fails, rounds, and nobody who interferes. Within two passes every task must be
 * closed and the queue empty.
 */
export async function runDry(world: World, real: Real): Promise<void> {
  for (let pass = 1; pass <= PASSES; pass++) {
    await step(real, () => silenceAll(real), false);
    await expandAll(world, real);
    await finish(world, real, 'A', 'completed');
    await new Alone({ do: 'round', limit: FULL_ROUND }).run(world, real);
    const openTasks = [...(world.tables?.tasks.values() ?? [])].filter((task) => task.status === 'processing');
    const jobs = [...(world.tables?.jobs.values() ?? []), ...(world.tables?.managerJobs.values() ?? [])];
    const liveJobs = jobs.filter((job) => job.live);
    const left = [...openTasks, ...liveJobs];
    if (left.length === 0) return;
    assert.ok(pass < PASSES, `every task ends, and leaves no job: ${JSON.stringify(left)}`);
  }
}

/** Whoever holds a delivery is never heard of again. */
async function silenceAll({ sql, bench, mode }: Real): Promise<[]> {
  await sql`update pgboss.job set heartbeat_on = now() - interval '1 hour' where state = 'active'`;
  for (const queue of [mode.queue, MANAGER_QUEUE as ResultQueue]) {
    await lapseHeartbeat({ ...bench, mode: { ...mode, queue } }, NIL);
  }
  return [];
}
