import assert from 'node:assert/strict';
import { test } from 'node:test';
import { on } from '../../src/queue.ts';
import { fillPast } from '../support/filled.ts';
import { openTestBench } from '../support/fixtures.ts';
import { type Executed, faultsOf, openPlanSession, type PlanSession, whyNoPlans } from '../support/plans.ts';
import type { HotStatement } from './hot-statement.ts';
import { READS } from './reads.ts';
import { clearScene, MODES_UNDER_TEST, makeScene, type Scene } from './scene.ts';
import { UPKEEP } from './upkeep.ts';
import { WORK } from './work.ts';

const bench = await openTestBench(import.meta.url);
const { sql, url } = bench;
const skip = await whyNoPlans(sql);

/** After five runs PostgreSQL compares the costs, and may go on by a generic plan. */
const RUNS = 8;

test('workers keep to their own rows also by plans that were made when the tables were small', { skip }, async (t) => {
  await stopAutovacuum();
  const session = await openPlanSession(url);
  t.after(() => session.end());
  // A worker of a new installation looks into empty queues first.
  for (const { queue } of MODES_UNDER_TEST) await bench.boss.fetch(queue, { batchSize: 3, ...on(session.sql) });
  const scene = await makeScene(bench, { batch: 3, size: 400, small: 2, tickets: 10 });
  for (const { run } of WORK) for (let i = 0; i < RUNS; i++) await run(scene, session.sql);
  await fillPast(url, { tasks: 1000, total: 100_000 });
  for (const statement of WORK) {
    await t.test(statement.name, async () => {
      check(await session.watch(() => statement.run(scene, session.sql)), statement, scene);
    });
  }
  await clearScene(scene);
});

test('every hot statement keeps to its own rows in a table of a million', { skip }, async (t) => {
  // Of ten results each: a large task is nothing that the planner would expect.
  await fillPast(url, { from: 1000, tasks: 90_000, total: 900_000 });
  await sql`vacuum analyze`;
  const session = await openPlanSession(url);
  t.after(() => session.end());
  const scene = await makeScene(bench, { batch: 20, size: 5000, small: 10, tickets: 100 });
  await sql`analyze`;
  for (const statement of [...WORK, ...READS, ...UPKEEP]) {
    await t.test(statement.name, () => keepsItsPlan(session, statement, scene));
  }
});

/** Run again and again as a process does, on one connection, and then by the generic plan, whether PostgreSQL likes it or not. */
async function keepsItsPlan(session: PlanSession, statement: HotStatement, scene: Scene): Promise<void> {
  const run = () => statement.run(scene, session.sql);
  for (let i = 0; i < RUNS; i++) check(await session.watch(run), statement, scene);
  check(await session.watchGeneric(run), statement, scene);
}

function check(executed: readonly Executed[], { rows }: HotStatement, scene: Scene): void {
  assert.ok(executed.length > 0, 'no plan came');
  const faults = executed.flatMap((one) => faultsOf(one, rows(scene)));
  assert.equal(faults.length, 0, faults.join('\n\n'));
}

/** Nothing makes PostgreSQL think again, as in the minute before autovacuum comes. */
async function stopAutovacuum(): Promise<void> {
  await sql`
    do $$
    declare
      small regclass;
    begin
      for small in
        select oid
        from pg_class
        where relkind = 'r'
          and relnamespace in ('asl_schema'::regnamespace, 'pgboss'::regnamespace)
      loop
        execute format('alter table %s set (autovacuum_enabled = off)', small);
      end loop;
    end
    $$`;
}
