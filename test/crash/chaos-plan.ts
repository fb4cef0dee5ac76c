import { createHash } from 'node:crypto';

/**
 * Everything that chaos decides, as a function of the seed and of what is decided about: no state, so a replay decides the
 * same, in whatever order things happen.
 */
export type Plan = {
  /** A number from `from` up to `to`, for the thing that is named. */
  number(from: number, to: number, ...name: (string | number)[]): number;
  /** One of the choices, by their weights. */
  choice<T extends string>(weights: Record<T, number>, ...name: (string | number)[]): T;
};

export function makePlan(seed: string): Plan {
  const number = (from: number, to: number, ...name: (string | number)[]): number => {
    const digest = createHash('sha256')
      .update([seed, ...name].join('/'))
      .digest();
    return from + (digest.readUInt32BE(0) / 2 ** 32) * (to - from);
  };
  return {
    number,
    choice<T extends string>(weights: Record<T, number>, ...name: (string | number)[]): T {
      const entries = Object.entries(weights) as [T, number][];
      let left = number(
        0,
        entries.reduce((sum, [, weight]) => sum + weight, 0),
        ...name,
      );
      for (const [what, weight] of entries) {
        left -= weight;
        if (left < 0) return what;
      }
      return (entries.at(-1) as [T, number])[0];
    },
  };
}

/** What becomes of one attempt at one paper. */
export const ENDINGS = {
  /** An answer: soon, later, or later and deaf to the signal to stop. */
  answer: 40,
  wait: 20,
  linger: 12,
  permanent: 4,
  transient: 12,
  defer: 7,
  /** Nothing, until the time limit. */
  hang: 5,
};
export type PaperEnding = keyof typeof ENDINGS;

/** The endings that bring a value. */
export const ANSWERS: readonly PaperEnding[] = ['answer', 'wait', 'linger'];

export const endingOf = (plan: Plan, filename: string, attempt: number): PaperEnding =>
  plan.choice(ENDINGS, 'paper', filename, attempt);

/** What is done to the system, a step at a time. */
export const STEPS = {
  'create a task': 22,
  SIGKILL: 16,
  SIGSTOP: 14,
  SIGTERM: 10,
  'end backends': 12,
  cancel: 10,
  /** In the midst of the first claims. */
  'create and cancel': 10,
  retry: 12,
};
export type StepKind = keyof typeof STEPS;
export type Step = { kind: StepKind; waitMs: number };

export const stepOf = (plan: Plan, step: number): Step => ({
  kind: plan.choice(STEPS, 'step', step),
  waitMs: plan.number(100, 900, 'wait', step),
});

/** In which mode, and whether it names its documents or is about all of its project. */
export const SHAPES = { scatter: 3, 'fan-out by list': 2, 'fan-out by project': 2 };

/** The kinds of tasks: with time enough and too little, with few failures allowed and with any. */
export const TASKS = { plain: 6, deadline: 2, 'failure count': 1, 'failure percent': 1 };
