import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { NIL } from 'uuid';
import { MANAGER_QUEUE } from '../../../src/queue.ts';
import type { TaskMode } from '../../../src/tasks/task-mode.ts';
import { makeDocuments, openTestBench } from '../../support/fixtures.ts';
import { Alone, commands, create, type Real } from './commands.ts';
import { openGate } from './gate.ts';
import { PROJECT, projectOf } from './limits.ts';
import { runDry } from './run-dry.ts';
import { narrowRaces, overdue, overtaking, resultCount, retryAll, sceneLimits, scenesOf, setScene } from './scenes.ts';
import { World } from './world.ts';

// Random interleavings of all that can happen to a task, checked after every step: see step-rules.ts for what a step may do,
// tables.ts and fanout-rules.ts for what holds in every state, and expectations.ts for what an operation answers when it is alone.
//
// PROPERTY_RUNS=2000 makes twenty times the common number of runs. A failure prints a seed and a path, which make the same run
// again; with PROPERTY_SHRINK=1 it is shrunk, which takes minutes, and then there may be a replayPath too:
//
//   PROPERTY_SEED=<seed> PROPERTY_PATH=<path> PROPERTY_REPLAY=<replayPath> \
//     node --import tsx --test --test-name-pattern=<name> test/tasks/interleavings.test.ts
//
// An operation that was `held` is overtaken at the same row each time; two that were started `together` are in a race, and may
// end otherwise. The database that a failure keeps shows the tables as the last run left them.
const { PROPERTY_RUNS, PROPERTY_SEED, PROPERTY_PATH, PROPERTY_REPLAY, PROPERTY_SHRINK } = process.env;
const parameters = (commonRuns: number, share: number) => ({
  endOnFailure: PROPERTY_SHRINK !== '1',
  numRuns: PROPERTY_RUNS ? Math.ceil(Number(PROPERTY_RUNS) * share) : commonRuns,
  ...(PROPERTY_SEED ? { seed: Number(PROPERTY_SEED) } : {}),
  ...(PROPERTY_PATH ? { path: PROPERTY_PATH } : {}),
});

/** The properties that tasks of either mode have, as the tests of the calling file, on a database of its own. */
export async function testInterleavings(file: string, mode: TaskMode): Promise<void> {
  const bench = { ...(await openTestBench(file)), mode };
  const { sql, boss } = bench;
  // A crash of the server is not what is tested here, and every step commits.
  await sql.unsafe(`alter database ${bench.name} set synchronous_commit = off`);
  const gate = await openGate(bench, mode);
  const documentIds = await makeDocuments(sql, PROJECT, 6);
  for (let documents = 1; documents <= 6; documents++) await makeDocuments(sql, projectOf(documents), documents);

  const begin = async (): Promise<{ world: World; real: Real }> => {
    await sql`delete from asl_schema.extraction_task`;
    await sql`delete from pgboss.job where name in (${mode.queue}, ${MANAGER_QUEUE})`;
    await sql`update asl_schema.aggregator_tick set cursor_task_id = ${NIL}, cursor_result_id = ${NIL}`;
    const world = new World();
    return { world, real: { sql, boss, bench, mode, gate, documentIds, world } };
  };

  test('whatever workers, users, rounds and the queue do in whatever order, nothing is lost and every task ends', async () => {
    const steps = commands(mode.name, PROPERTY_REPLAY);
    const property = fc.asyncProperty(create(mode.name), steps, async (first, steps) => {
      const { world, real } = await begin();
      await new Alone(first).run(world, real);
      await fc.asyncModelRun(() => ({ model: world, real }), steps);
      await runDry(world, real);
    });
    await fc.assert(property, parameters(25, 0.25));
  });

  test('an operation that is overtaken in its midst by another, at whatever row, does no harm', async () => {
    const property = fc.asyncProperty(
      fc.constantFrom(...scenesOf(mode.name)),
      resultCount,
      sceneLimits,
      overdue,
      overtaking(mode.name),
      async (name, count, limits, passes, overtaken) => {
        const { world, real } = await begin();
        await setScene(world, real, name, count, limits);
        if (passes !== null) await new Alone(passes).run(world, real);
        if (overtaken.check(world)) await overtaken.run(world, real);
        // Whatever has become of it, its user may try again what failed.
        await new Alone(retryAll).run(world, real);
        await runDry(world, real);
      },
    );
    const examples = narrowRaces(mode.name);
    const { numRuns, ...rest } = parameters(70, 0.75);
    await fc.assert(property, { ...rest, examples, numRuns: examples.length + numRuns });
  });

  test('all of that takes its locks in one order: nobody was ever the victim of a deadlock', async () => {
    const [server] = await sql<{ deadlocks: number }[]>`
      select deadlocks::int from pg_stat_database where datname = current_database()`;
    assert.equal(server?.deadlocks, 0);
  });
}
