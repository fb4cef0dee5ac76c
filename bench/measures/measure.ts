import type { Bench } from '../bench.ts';
import type { Table, Target } from '../report.ts';

/** Tables for README, and targets that this measure decides. */
export type Findings = { tables: Table[]; targets?: Target[] };

export type Measure = {
  /** As `only=` takes it. */
  name: string;
  take(bench: Bench): Promise<Findings>;
};
