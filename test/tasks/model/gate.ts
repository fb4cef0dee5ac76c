import { after } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type Sql } from '../../../src/db.ts';
import { MANAGER_QUEUE } from '../../../src/queue.ts';
import type { TaskMode } from '../../../src/tasks/task-mode.ts';
import type { TestBench } from '../../support/fixtures.ts';

/**
 * Stops one operation in the midst of a statement, at the n-th row that it looks at: after that statement's snapshot, with the
 * locks of all that came before, and before whatever it would do next.
 *
 * Row-level security is what makes this possible from outside: a policy is asked for every row that a statement reads, and
 * this one may wait. It holds for `sql` alone, which works under a role that policies apply to; everyone else is the owner.
 */
export type Gate = {
  /** One connection, for the operation that is to be stopped. */
  sql: Sql;
  /** Lets `held` go as far as its n-th row, then does `meanwhile` until it is over or waits for `held`, then lets go. */
  overtake<T>(atRow: number, held: (sql: Sql) => Promise<T>, meanwhile: () => Promise<T>): Promise<[T, T]>;
};

const LOCK = 7_531;

/** Puts the gate into the bench's database. Leaves nothing in the server: the role is one that every PostgreSQL has. */
export async function openGate({ sql, url, boss }: TestBench, mode: TaskMode): Promise<Gate> {
  const queues = await Promise.all([mode.queue, MANAGER_QUEUE].map((name) => boss.getQueue(name)));
  await sql.unsafe(`
    create schema gate;
    create function gate.pass() returns boolean language plpgsql volatile as $$
    declare
      row_number integer := current_setting('gate.row_number')::integer + 1;
    begin
      perform set_config('gate.row_number', row_number::text, false);
      if row_number = current_setting('gate.stop_at')::integer then
        perform pg_advisory_lock_shared(${LOCK});
        perform pg_advisory_unlock_shared(${LOCK});
      end if;
      return true;
    end $$;
    grant usage on schema gate, asl_schema, pgboss to pg_database_owner;
    grant all on all tables in schema asl_schema, pgboss to pg_database_owner;`);
  for (const table of [
    'asl_schema.extraction_task',
    'asl_schema.extraction_result',
    'asl_schema.extraction_attempt',
    'asl_schema.aggregator_tick',
    'asl_schema.fanout_tally',
    'asl_schema.fanout_expansion',
    'pgboss.job',
    ...queues.map((queue) => `pgboss.${queue?.table}`),
  ]) {
    await sql`alter table ${sql(table)} enable row level security`;
    await sql`create policy gate on ${sql(table)} using (gate.pass())`;
  }
  const held = connect(url, { max: 1, applicationName: 'sheaf-test-held' });
  const keeper = connect(url, { max: 1, applicationName: 'sheaf-test-keeper' });
  after(() => Promise.all([held.end({ timeout: 5 }), keeper.end({ timeout: 5 })]));
  await held`set role pg_database_owner`;

  /** Until the operation is over, or one of the connections waits for a lock. */
  const overOrWaiting = async (operation: Promise<unknown>, whose: 'held' | 'others'): Promise<void> => {
    let over = false;
    const end = (): void => {
      over = true;
    };
    operation.then(end, end);
    for (;;) {
      await sleep(1);
      if (over) return;
      const waiting = await keeper`
        select 1
        from pg_stat_activity
        where datname = current_database()
          and wait_event_type = 'Lock'
          and (application_name = 'sheaf-test-held') = ${whose === 'held'}`;
      if (waiting.length > 0) return;
    }
  };

  return {
    sql: held,
    async overtake(atRow, begin, meanwhile) {
      await held`
        select set_config('gate.row_number', '0', false), set_config('gate.stop_at', ${String(atRow)}, false)`;
      await keeper`select pg_advisory_lock(${LOCK})`;
      const first = begin(held);
      await overOrWaiting(first, 'held');
      const second = meanwhile();
      await overOrWaiting(second, 'others');
      await keeper`select pg_advisory_unlock(${LOCK})`;
      return await Promise.all([first, second]);
    },
  };
}
