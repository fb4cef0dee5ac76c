import type { Sql } from '../../src/db.ts';
import type { Scene } from './scene.ts';

/** Something that the product does all the time. */
export type HotStatement = {
  name: string;
  /** How many rows it is about: its plans touch these, and hardly any others. */
  rows(scene: Scene): number;
  /** Does it once, on the connection that is watched; what has to be there for it is made on others. */
  run(scene: Scene, watched: Sql): Promise<unknown>;
};

export const one = (): number => 1;
export const batch = (scene: Scene): number => scene.batch;
export const size = (scene: Scene): number => scene.size;
