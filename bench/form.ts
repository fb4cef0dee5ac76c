import { Complaint } from '../scripts/cli.ts';

/** How much a run measures. The short form ends in minutes, the full one takes all sizes. */
export type Form = {
  name: 'short' | 'full';
  /** Rounds of each contender in turn, A B C A B C. */
  rounds: number;
  /** Names of the measures to take; empty: all. */
  only: readonly string[];
  /** Names of the contenders, or parts of them; empty: all. */
  contenders: readonly string[];
};

/** Reads `BENCH=full`, `only=submit,no-op`, `contenders=sheaf,pg-boss` and `rounds=5` from the environment. */
export function readForm(env: Record<string, string | undefined>): Form {
  const name = env.BENCH || 'short';
  if (name !== 'short' && name !== 'full') throw new Complaint(`BENCH is short or full, not ${name}`);
  const rounds = Number(env.rounds || 3);
  if (!Number.isInteger(rounds) || rounds < 1) throw new Complaint(`rounds is a whole number, not ${env.rounds}`);
  return { name, rounds, only: words(env.only), contenders: words(env.contenders) };
}

function words(list: string | undefined): string[] {
  return (list ?? '').split(/[\s,]+/).filter((word) => word !== '');
}
