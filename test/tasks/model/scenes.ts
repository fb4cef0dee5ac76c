import fc from 'fast-check';
import { NO_LIMITS, type TaskLimits } from '../../../src/tasks/task.ts';
import { Alone, limits, Overtaken, type Real, step } from './commands.ts';
import { FULL_ROUND } from './expectations.ts';
import { type Operation, perform } from './operations.ts';
import { WORKERS, type WorkerName, type World } from './world.ts';

/** A worker takes all that waits, and settles what that brought it. */
export async function finish(world: World, real: Real, worker: WorkerName, kind: 'completed' | 'error'): Promise<void> {
  const { held } = world.workers[worker];
  const before = held.length;
  await new Alone({ do: 'take', worker, count: 1000 }).run(world, real);
  const taken = Array.from({ length: held.length - before }, (_, which) => which);
  const settling = () => Promise.all(taken.map((which) => perform(real, { do: 'settle', worker, which, kind })));
  await step(real, async () => (await settling()).flat(), false);
}

/**
 * States in which much can go wrong, by what led to them; A is the worker that was first, B the one that came after it. Each
 * begins with a task of a few results.
 */
export const SCENES = {
  waiting: [{ do: 'fetch', worker: 'A', count: 1 }],
  running: [{ do: 'take', worker: 'A', count: 2 }],
  silent: [
    { do: 'take', worker: 'A', count: 1 },
    { do: 'lapse', which: 0 },
  ],
  redelivered: [
    { do: 'take', worker: 'A', count: 1 },
    { do: 'lapse', which: 0 },
    { do: 'fetch', worker: 'B', count: 2 },
  ],
  takenOver: [
    { do: 'take', worker: 'A', count: 1 },
    { do: 'lapse', which: 0 },
    { do: 'take', worker: 'B', count: 2 },
  ],
  neverClaimed: [
    { do: 'fetch', worker: 'A', count: 1 },
    { do: 'lapse', which: 0 },
    { do: 'fetch', worker: 'B', count: 2 },
  ],
  stalled: [
    { do: 'take', worker: 'A', count: 2 },
    { do: 'backdate', which: 0 },
  ],
  sweptAlive: [
    { do: 'take', worker: 'A', count: 2 },
    { do: 'backdate', which: 0 },
    { do: 'round', limit: FULL_ROUND },
  ],
  jobless: [
    { do: 'round', limit: FULL_ROUND },
    { do: 'destroy', which: 0 },
    { do: 'take', worker: 'A', count: 1 },
    { do: 'cancelJob', which: 0 },
  ],
  failed: 'error',
  done: 'completed',
  cancelled: [
    { do: 'take', worker: 'A', count: 1 },
    { do: 'cancel', which: 0 },
    { do: 'age', which: 0 },
  ],
} as const satisfies Record<string, readonly Operation[] | 'error' | 'completed'>;

export type Scene = keyof typeof SCENES;

export async function setScene(world: World, real: Real, scene: Scene): Promise<void> {
  const lead = SCENES[scene];
  if (lead === 'error' || lead === 'completed') await finish(world, real, 'A', lead);
  else for (const operation of lead) await new Alone(operation).run(world, real);
  for (const worker of WORKERS) {
    for (const look of [new Alone({ do: 'check', worker }), new Alone({ do: 'beat', worker })]) {
      if (look.check(world)) await look.run(world, real);
    }
  }
}

export const retryAll: Operation & { do: 'retry' } = { do: 'retry', which: 0, results: null, limits: NO_LIMITS };
const contender: fc.Arbitrary<Operation> = fc.oneof(
  fc.constant<Operation>({ do: 'round', limit: FULL_ROUND }),
  fc.constant(retryAll),
  fc.constant<Operation>({ do: 'cancel', which: 0 }),
  fc.constantFrom<Operation>({ do: 'delete', which: 0 }, { do: 'expire', maxResults: 1 }),
  fc.record({
    do: fc.constant('settle'),
    worker: fc.constantFrom('A', 'B'),
    which: fc.nat({ max: 1 }),
    kind: fc.constantFrom('completed', 'error', 'retry', 'released'),
  }),
  fc.record({
    do: fc.constant('claim'),
    worker: fc.constantFrom('A', 'B'),
    which: fc.constant(0),
    count: fc.integer({ min: 1, max: 2 }),
  }),
  fc.record({ do: fc.constant('take'), worker: fc.constantFrom('A', 'B'), count: fc.integer({ min: 1, max: 2 }) }),
  fc.constantFrom<Operation>({ do: 'lapse', which: 0 }, { do: 'destroy', which: 0 }),
);

/** One of these stopped in its midst by another of these. None looks at many more rows than that. */
export const overtaking = fc
  .tuple(contender, fc.integer({ min: 1, max: 14 }), contender)
  .map(([held, atRow, meanwhile]) => new Overtaken(held, atRow, [meanwhile]));
export const scene = fc.constantFrom(...(Object.keys(SCENES) as Scene[]));
/** Set before a scene, since a create takes no deadline that has passed; `overdue` is set after it. */
export const sceneLimits = limits.filter((one) => one.deadlineAt === null || one.deadlineAt.getTime() > Date.now());
export const overdue = fc.option(fc.constant<Operation>({ do: 'overdue', which: 0 }), { freq: 5 });
export const resultCount = fc.integer({ min: 1, max: 2 });

/** What makes a run of a scene. */
type Run = [Scene, results: number, TaskLimits, overdue: Operation | null, Overtaken];

/** Races that are too narrow to be left to chance: each at every row, in every run. */
export function narrowRaces(): Run[] {
  const round: Operation = { do: 'round', limit: FULL_ROUND };
  const cancel: Operation = { do: 'cancel', which: 0 };
  const claim = (worker: WorkerName): Operation => ({ do: 'claim', worker, which: 0, count: 1 });
  const expire: Operation = { do: 'expire', maxResults: 1 };
  const failNone: TaskLimits = { ...NO_LIMITS, maxFailedCount: 0 };
  const races: [Scene, TaskLimits, held: Operation, meanwhile: Operation[]][] = [
    // Results put back between the look of a close, of a stop or of a deletion, and its lock.
    ['failed', NO_LIMITS, round, [retryAll]],
    ['failed', failNone, round, [{ ...retryAll, limits: failNone }]],
    ['cancelled', NO_LIMITS, { do: 'delete', which: 0 }, [retryAll]],
    ['cancelled', NO_LIMITS, expire, [retryAll]],
    // A new job between the look for a lost one and the lock.
    ['jobless', NO_LIMITS, round, [cancel, retryAll]],
    // Two that want the task and its results.
    ['failed', NO_LIMITS, retryAll, [cancel]],
    ['failed', NO_LIMITS, cancel, [round]],
    ['running', NO_LIMITS, cancel, [retryAll]],
    // A takeover beside the very claim that it takes over from.
    ['neverClaimed', NO_LIMITS, claim('A'), [claim('B')]],
    ['neverClaimed', NO_LIMITS, claim('B'), [claim('A')]],
    // A stop beside a claim.
    ['waiting', NO_LIMITS, claim('A'), [cancel]],
    ['waiting', NO_LIMITS, cancel, [claim('A')]],
  ];
  return races.flatMap(([scene, taskLimits, held, meanwhile]) =>
    Array.from(
      { length: 10 },
      (_, i): Run => [...([scene, 1, taskLimits, null] as const), new Overtaken(held, i + 1, meanwhile)],
    ),
  );
}
