import fc from 'fast-check';
import { NO_LIMITS, type TaskLimits, type TaskModeName } from '../../../src/tasks/task.ts';
import { Alone, expand, expandAll, limits, Overtaken, type Real, step } from './commands.ts';
import { FULL_ROUND } from './expectations.ts';
import { CHUNK } from './limits.ts';
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

const takeTask = (worker: WorkerName): Operation & { do: 'expand' } => ({
  do: 'expand',
  worker,
  takes: true,
  which: 0,
});
const FIRST = { do: 'settle', worker: 'A', kind: 'completed' } as const;

/** The same of tasks whose manager is at work: it begins with a chunk, and leaves as much or less. */
export const FANOUT_SCENES = {
  expanding: [takeTask('A')],
  expandingRunning: [takeTask('A'), { do: 'take', worker: 'A', count: 2 }],
  expandingDone: [takeTask('A'), { do: 'take', worker: 'A', count: 2 }, { ...FIRST, which: 0 }, { ...FIRST, which: 1 }],
  expandingCancelled: [takeTask('A'), { do: 'take', worker: 'A', count: 1 }, { do: 'cancel', which: 0 }],
  silentManager: [takeTask('A'), { do: 'lapse', which: 0 }, { do: 'take', worker: 'A', count: 1 }],
  twoManagers: [takeTask('A'), { do: 'lapse', which: 0 }, takeTask('B')],
  lateManager: [takeTask('A'), { do: 'lapse', which: 0 }, takeTask('B'), { ...takeTask('A'), takes: false }],
  // Of its live jobs the newest are the children's.
  lostManager: [takeTask('A'), { do: 'destroy', which: CHUNK }, { do: 'take', worker: 'A', count: 1 }],
} as const satisfies Record<string, readonly Operation[]>;

export type Scene = keyof typeof SCENES | keyof typeof FANOUT_SCENES;
export const scenesOf = (mode: TaskModeName): Scene[] =>
  [...Object.keys(SCENES), ...(mode === 'fanout' ? Object.keys(FANOUT_SCENES) : [])] as Scene[];

/** Of so many results, in scenes where all are made; where a manager is at work there are more to come. */
export async function setScene(
  world: World,
  real: Real,
  scene: Scene,
  results: number,
  limits: TaskLimits,
): Promise<void> {
  const isExpanding = scene in FANOUT_SCENES;
  const documents = isExpanding ? CHUNK + results : results;
  const whole = real.mode.name === 'fanout' && results % 2 === 0;
  await new Alone({ do: 'create', key: null, documents, limits, ...(whole ? { whole } : {}) }).run(world, real);
  if (!isExpanding) await expandAll(world, real);
  const lead = { ...SCENES, ...FANOUT_SCENES }[scene];
  if (lead === 'error' || lead === 'completed') await finish(world, real, 'A', lead);
  else for (const operation of lead) await new Alone(operation).run(world, real);
  for (const worker of WORKERS) {
    for (const look of [new Alone({ do: 'check', worker }), new Alone({ do: 'beat', worker })]) {
      if (look.check(world)) await look.run(world, real);
    }
  }
}

export const retryAll: Operation & { do: 'retry' } = { do: 'retry', which: 0, results: null, limits: NO_LIMITS };
const contenders: fc.Arbitrary<Operation>[] = [
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
];
const ofManagers: fc.Arbitrary<Operation>[] = [
  fc.constant<Operation>({ do: 'sweep' }),
  expand,
  expand,
  fc.constantFrom<Operation>(
    { do: 'giveUp', worker: 'A', which: 0 },
    { do: 'retry', which: 0, results: [0], limits: NO_LIMITS },
  ),
];

/** One of these stopped in its midst by another of these. None looks at many more rows than that. */
export const overtaking = (mode: TaskModeName): fc.Arbitrary<Overtaken> => {
  const contender = fc.oneof(...contenders, ...(mode === 'fanout' ? ofManagers : []));
  return fc
    .tuple(contender, fc.integer({ min: 1, max: mode === 'fanout' ? 30 : 14 }), contender)
    .map(([held, atRow, meanwhile]) => new Overtaken(held, atRow, [meanwhile]));
};
/** Set before a scene, since a create takes no deadline that has passed; `overdue` is set after it. */
export const sceneLimits = limits.filter((one) => one.deadlineAt === null || one.deadlineAt.getTime() > Date.now());
export const overdue = fc.option(fc.constant<Operation>({ do: 'overdue', which: 0 }), { freq: 5 });
export const resultCount = fc.integer({ min: 1, max: 2 });

/** What makes a run of a scene. */
type Run = [Scene, results: number, TaskLimits, overdue: Operation | null, Overtaken];
type Race = [Scene, TaskLimits, held: Operation, meanwhile: Operation[], results?: number, overdue?: Operation];

const round: Operation = { do: 'round', limit: FULL_ROUND };
const cancel: Operation = { do: 'cancel', which: 0 };
const settle = (which: number): Operation => ({ do: 'settle', worker: 'A', which, kind: 'completed' });
const claim = (worker: WorkerName): Operation => ({ do: 'claim', worker, which: 0, count: 1 });
const expire: Operation = { do: 'expire', maxResults: 1 };
const failNone: TaskLimits = { ...NO_LIMITS, maxFailedCount: 0 };

const RACES: Race[] = [
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

const next: Operation = { do: 'expand', worker: 'A', takes: false, which: 0 };
const byOther: Operation = { do: 'expand', worker: 'B', takes: false, which: 0 };
const pastDeadline: Operation = { do: 'overdue', which: 0 };

const FANOUT_RACES: Race[] = [
  // Two last results, and the last one beside those who hold the row of its task.
  ['running', NO_LIMITS, settle(0), [settle(1)], 2],
  ['running', NO_LIMITS, settle(0), [cancel]],
  ['running', NO_LIMITS, cancel, [settle(0)]],
  ['running', NO_LIMITS, settle(0), [retryAll]],
  ['running', NO_LIMITS, retryAll, [settle(0)]],
  ['running', NO_LIMITS, round, [settle(0)]],
  ['running', NO_LIMITS, { do: 'sweep' }, [settle(0)], 2],
  // A round that has counted one result, and then waits for another of the same task.
  ['stalled', NO_LIMITS, settle(1), [round], 2, pastDeadline],
  ['stalled', failNone, settle(1), [round], 2],
  // The last chunk beside the last settle of what there is so far, and a task that is ended or opened beside a chunk.
  ['expandingRunning', NO_LIMITS, next, [settle(0), settle(1)], 1],
  ['expandingRunning', NO_LIMITS, settle(0), [settle(1), next], 1],
  ['expandingDone', NO_LIMITS, next, [cancel], 1],
  ['expandingDone', NO_LIMITS, cancel, [next], 1],
  ['expandingCancelled', NO_LIMITS, next, [retryAll], 1],
  ['expandingCancelled', NO_LIMITS, retryAll, [next], 1],
  ['lostManager', NO_LIMITS, round, [cancel, retryAll], 1],
  ['lateManager', NO_LIMITS, round, [cancel, retryAll], 2],
  ['twoManagers', NO_LIMITS, next, [byOther], 2],
  ['twoManagers', NO_LIMITS, byOther, [next, { do: 'giveUp', worker: 'A', which: 0 }], 2],
];

/** Races that are too narrow to be left to chance: each at every row, in every run. */
export function narrowRaces(mode: TaskModeName): Run[] {
  const atRows = (races: readonly Race[], rows: number): Run[] =>
    races.flatMap(([scene, taskLimits, held, meanwhile, results = 1, overdue = null]) =>
      Array.from(
        { length: rows },
        (_, i): Run => [scene, results, taskLimits, overdue, new Overtaken(held, i + 1, meanwhile)],
      ),
    );
  return mode === 'fanout' ? [...atRows(RACES, 8), ...atRows(FANOUT_RACES, 16)] : atRows(RACES, 10);
}
