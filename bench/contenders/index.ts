import { bullmqPostgres, bullmqRedis } from './bullmq.ts';
import type { Contender } from './contender.ts';
import { graphileWorkerPlain, graphileWorkerTuned } from './graphile-worker.ts';
import { pgBossPlain, pgBossTuned } from './pg-boss.ts';
import { sheaf } from './sheaf.ts';

/** In the order of the tables, which is the order of their turns. */
export const CONTENDERS: readonly Contender[] = [
  sheaf('scatter'),
  sheaf('fanout'),
  pgBossPlain,
  pgBossTuned,
  graphileWorkerPlain,
  graphileWorkerTuned,
  bullmqPostgres('plain'),
  bullmqPostgres('tuned'),
  bullmqRedis('plain'),
  bullmqRedis('tuned'),
];
