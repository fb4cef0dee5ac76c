import type { Sql } from '../db.ts';
import type { Pause, Stage } from '../permits/stage.ts';
import { readStages } from '../permits/stage-store.ts';

/** The stages in which nobody is let in at the moment, and why. `until` null: until someone acts. */
export async function readPauses(sql: Sql): Promise<({ stage: Stage } & Pause)[]> {
  const stages = await readStages(sql);
  return stages.flatMap(({ stage, pause }) => (pause === null ? [] : [{ stage, ...pause }]));
}
