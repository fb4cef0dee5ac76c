import fc from 'fast-check';
import { NO_LIMITS, type TaskLimits, type TaskModeName } from '../../../src/tasks/task.ts';
import { checkAnswers, FULL_ROUND } from './expectations.ts';
import type { Gate } from './gate.ts';
import { MAX_ATTEMPTS } from './limits.ts';
import { type Operation, perform } from './operations.ts';
import { checkStep } from './step-rules.ts';
import { findBrokenRules, readTables } from './tables.ts';
import { broken, type Event, type Ground, WORKERS, type World } from './world.ts';

export type Real = Ground & { gate: Gate };
export type Command = fc.AsyncCommand<World, Real>;

/** Does one step and checks everything: the step against the tables before it, then the tables as they are. */
export async function step(real: Real, run: () => Promise<Event[]>, alone: boolean): Promise<void> {
  const { world } = real;
  const { bench, mode } = real;
  const before = world.tables ?? (await readTables(bench.sql, mode));
  const events = await run();
  const [after, rules] = await Promise.all([
    readTables(bench.sql, mode),
    findBrokenRules(bench.sql, { maxAttempts: MAX_ATTEMPTS, mode }),
  ]);
  for (const { resultId } of events.filter((event) => event.event === 'backdate')) {
    world.backdated.add(`${resultId}#${after.results.get(resultId)?.attempt}`);
  }
  if (rules.length > 0) broken('what holds in every state', rules);
  world.tables = after;
  const done = { world, events, before, after };
  if (alone) checkAnswers(done);
  checkStep(done);
}

const show = (operation: Operation): string => JSON.stringify(operation);

/** One operation, with nothing beside it. */
export class Alone implements Command {
  readonly operation: Operation;
  constructor(operation: Operation) {
    this.operation = operation;
  }
  check = (world: World): boolean => isPossible(world, this.operation);
  run = (_: World, real: Real): Promise<void> => step(real, () => perform(real, this.operation), true);
  toString = (): string => `alone ${show(this.operation)}`;
}

/** A manager makes all results that there are still to make. */
export async function expandAll(world: World, real: Real): Promise<void> {
  const take: Operation = { do: 'expand', worker: 'A', takes: true, which: 0 };
  const isWaiting = (): boolean =>
    [...(world.tables?.managerJobs.values() ?? [])].some(({ live, state }) => live && state !== 'active');
  while (isWaiting()) {
    await new Alone(take).run(world, real);
    const held = world.workers.A.expanding.at(-1);
    while (held !== undefined && world.tables?.managerJobs.get(held.job.id)?.state === 'active') {
      await new Alone({ ...take, takes: false }).run(world, real);
    }
  }
}

/** A create, and all chunks of its manager after it. */
class Expanded extends Alone {
  override run = async (world: World, real: Real): Promise<void> => {
    await step(real, () => perform(real, this.operation), true);
    await expandAll(world, real);
  };
}

/** Two operations at the same moment, on connections of their own. Who comes first is the database's to say. */
export class Together implements Command {
  readonly operations: readonly [Operation, Operation];
  constructor(operations: [Operation, Operation]) {
    this.operations = operations;
  }
  check = (world: World): boolean => this.operations.every((operation) => isPossible(world, operation));
  run = (_: World, real: Real): Promise<void> =>
    step(real, async () => (await Promise.all(this.operations.map((one) => perform(real, one)))).flat(), false);
  toString = (): string => `together ${this.operations.map(show).join(' ')}`;
}

/** One operation stopped in its midst while others, one after the other, do all that they can. Always the same way. */
export class Overtaken implements Command {
  readonly held: Operation;
  readonly atRow: number;
  readonly meanwhile: readonly Operation[];
  constructor(held: Operation, atRow: number, meanwhile: readonly Operation[]) {
    this.held = held;
    this.atRow = atRow;
    this.meanwhile = meanwhile;
  }
  check = (world: World): boolean => [this.held, ...this.meanwhile].every((operation) => isPossible(world, operation));
  run = (_: World, real: Real): Promise<void> => {
    const held = (sql: Real['sql']) => perform({ ...real, sql }, this.held);
    const meanwhile = async () => {
      const events: Event[] = [];
      for (const operation of this.meanwhile) events.push(...(await perform(real, operation)));
      return events;
    };
    const overtaken = () => real.gate.overtake(this.atRow, held, meanwhile);
    return step(real, async () => (await overtaken()).flat(), false);
  };
  toString = (): string =>
    `held ${show(this.held)} at row ${this.atRow}, meanwhile ${this.meanwhile.map(show).join(' ')}`;
}

/** What would find nothing to work on is left out of the run. */
function isPossible(world: World, operation: Operation): boolean {
  switch (operation.do) {
    case 'claim':
      return world.workers[operation.worker].fetched.length > 0;
    case 'settle':
      return world.workers[operation.worker].held.length > 0;
    case 'check':
    case 'beat':
      return world.workers[operation.worker].held.length > 0;
    case 'expand':
      return operation.takes || world.workers[operation.worker].expanding.length > 0;
    case 'giveUp':
      return world.workers[operation.worker].expanding.length > 0;
    case 'backdate':
      return world.hasClaims();
    case 'cancel':
    case 'delete':
    case 'retry':
    case 'age':
    case 'overdue':
    case 'progress':
      return world.taskIds.length > 0;
    default:
      return true;
  }
}

/** The newest more often than not, so that two operations meet. */
const which = fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, { weight: 4, arbitrary: fc.nat({ max: 7 }) });
const worker = fc.constantFrom(...WORKERS);
const count = fc.integer({ min: 1, max: 4 });
const nullOr = <T>(...values: T[]): fc.Arbitrary<T | null> => fc.option(fc.constantFrom(...values), { freq: 2 });
export const limits: fc.Arbitrary<TaskLimits> = fc.oneof(
  { weight: 3, arbitrary: fc.constant(NO_LIMITS) },
  {
    weight: 2,
    arbitrary: fc.record({
      deadlineAt: nullOr(new Date('2020-01-01'), new Date('2100-01-01')),
      maxFailedCount: nullOr(0, 1),
      maxFailedPercent: nullOr(0, 50),
    }),
  },
);

type Create = Operation & { do: 'create' };
const request = {
  do: fc.constant('create' as const),
  key: nullOr('key-1', 'key-2'),
  documents: fc.nat({ max: 6 }),
  limits,
};
export const create = (mode: TaskModeName): fc.Arbitrary<Create> =>
  mode === 'scatter' ? fc.record(request) : fc.record({ ...request, whole: fc.boolean() });
const settle: fc.Arbitrary<Operation> = fc.record({
  do: fc.constant('settle'),
  worker,
  which,
  kind: fc.constantFrom('completed', 'error', 'retry', 'deferred', 'released'),
});
const retry: fc.Arbitrary<Operation> = fc.record({
  do: fc.constant('retry'),
  which: fc.nat({ max: 2 }),
  results: fc.option<number[]>(fc.array(which, { minLength: 1, maxLength: 3 }), { freq: 2 }),
  limits,
});
type Chosen = 'lapse' | 'destroy' | 'cancelJob' | 'cancel' | 'delete' | 'progress';
const one = (name: Chosen, max: number): fc.Arbitrary<Operation> =>
  fc.record({ do: fc.constant(name), which: fc.nat({ max }) });

/** What only managers do. `takes` more often than not: a chunk by a task's own manager. */
export const expand: fc.Arbitrary<Operation> = fc.record({
  do: fc.constant('expand'),
  worker,
  takes: fc.boolean(),
  which: fc.nat({ max: 2 }),
});

const shared = [
  { weight: 14, arbitrary: fc.record({ do: fc.constant('take'), worker, count }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('fetch'), worker, count }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('claim'), worker, which, count }) },
  { weight: 20, arbitrary: settle },
  { weight: 12, arbitrary: one('lapse', 7) },
  { weight: 1, arbitrary: one('destroy', 7) },
  { weight: 1, arbitrary: one('cancelJob', 7) },
  { weight: 3, arbitrary: one('cancel', 2) },
  { weight: 2, arbitrary: one('delete', 2) },
  { weight: 2, arbitrary: one('progress', 2) },
  { weight: 6, arbitrary: retry },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('expire'), maxResults: fc.nat({ max: 8 }) }) },
  {
    weight: 8,
    arbitrary: fc.record({ do: fc.constant('round'), limit: fc.constantFrom(FULL_ROUND, 3, 1) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('check', 'beat'), worker }) },
] satisfies fc.WeightedArbitrary<Operation>[];
const operationOf = (mode: TaskModeName): fc.Arbitrary<Operation> =>
  fc.oneof(
    { weight: 4, arbitrary: create(mode) },
    ...shared,
    { weight: mode === 'fanout' ? 16 : 0, arbitrary: expand },
    { weight: mode === 'fanout' ? 2 : 0, arbitrary: fc.constant<Operation>({ do: 'sweep' }) },
    {
      weight: mode === 'fanout' ? 1 : 0,
      arbitrary: fc.record({ do: fc.constant('giveUp'), worker, which: fc.nat({ max: 2 }) }),
    },
  );
const handOfTime: fc.Arbitrary<Operation> = fc.record({
  do: fc.constantFrom('backdate', 'age', 'overdue'),
  which,
});

/** A run: up to 60 steps, half of them two operations at once. `replayPath` is what a failure printed. */
export const commands = (mode: TaskModeName, replayPath?: string) => {
  const operation = operationOf(mode);
  const alone = fc.oneof({ weight: 8, arbitrary: operation }, { weight: 1, arbitrary: handOfTime });
  const overtaken = fc.tuple(operation, fc.integer({ min: 1, max: 40 }), operation);
  return fc.commands(
    [
      alone.map((operation) => new Alone(operation)),
      alone.map((operation) => new Alone(operation)),
      ...(mode === 'fanout' ? [create(mode).map((operation) => new Expanded(operation))] : []),
      fc.tuple(operation, operation).map((both) => new Together(both)),
      overtaken.map(([held, atRow, meanwhile]) => new Overtaken(held, atRow, [meanwhile])),
    ],
    { maxCommands: 60, size: 'max', ...(replayPath ? { replayPath } : {}) },
  );
};
