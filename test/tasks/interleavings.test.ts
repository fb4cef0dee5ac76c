import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { NIL } from 'uuid';
import { EXTRACT_QUEUE } from '../../src/queue.ts';
import { makeDocuments, openTestBench } from '../support/fixtures.ts';
import { Alone, commands, create, type Real } from './model/commands.ts';
import { openGate } from './model/gate.ts';
import { PROJECT } from './model/limits.ts';
import { runDry } from './model/run-dry.ts';
import {
  narrowRaces,
  overdue,
  overtaking,
  resultCount,
  retryAll,
  scene,
  sceneLimits,
  setScene,
} from './model/scenes.ts';
import { World } from './model/world.ts';

// Random interleavings of all that can happen to a task, checked after every step: see model/step-rules.ts for what a step may
// do, model/tables.ts for what holds in every state, and model/expectations.ts for what an operation answers when it is alone.
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

const bench = await openTestBench(import.meta.url);
const { sql, boss } = bench;
// A crash of the server is not what is tested here, and every step commits.
await sql.unsafe(`alter database ${bench.name} set synchronous_commit = off`);
const gate = await openGate(bench);
const documentIds = await makeDocuments(sql, PROJECT, 6);

async function begin(): Promise<{ world: World; real: Real }> {
  await sql`delete from asl_schema.extraction_task`;
  await sql`delete from pgboss.job where name = ${EXTRACT_QUEUE}`;
  await sql`update asl_schema.aggregator_tick set cursor_task_id = ${NIL}, cursor_result_id = ${NIL}`;
  const world = new World();
  return { world, real: { sql, boss, bench, gate, documentIds, world } };
}

test('whatever workers, users, rounds and the queue do in whatever order, nothing is lost and every task ends', async () => {
  const property = fc.asyncProperty(create, commands(PROPERTY_REPLAY), async (first, steps) => {
    const { world, real } = await begin();
    await new Alone(first).run(world, real);
    await fc.asyncModelRun(() => ({ model: world, real }), steps);
    await runDry(world, real);
  });
  await fc.assert(property, parameters(25, 0.25));
});

test('an operation that is overtaken in its midst by another, at whatever row, does no harm', async () => {
  const property = fc.asyncProperty(
    scene,
    resultCount,
    sceneLimits,
    overdue,
    overtaking,
    async (name, count, limits, passes, overtaken) => {
      const { world, real } = await begin();
      await new Alone({ do: 'create', key: null, documents: count, limits }).run(world, real);
      await setScene(world, real, name);
      if (passes !== null) await new Alone(passes).run(world, real);
      if (overtaken.check(world)) await overtaken.run(world, real);
      // Whatever has become of it, its user may try again what failed.
      await new Alone(retryAll).run(world, real);
      await runDry(world, real);
    },
  );
  const examples = narrowRaces();
  const { numRuns, ...rest } = parameters(70, 0.75);
  await fc.assert(property, { ...rest, examples, numRuns: examples.length + numRuns });
});

test('all of that takes its locks in one order: nobody was ever the victim of a deadlock', async () => {
  const [server] = await sql<{ deadlocks: number }[]>`
    select deadlocks::int from pg_stat_database where datname = current_database()`;
  assert.equal(server?.deadlocks, 0);
});
