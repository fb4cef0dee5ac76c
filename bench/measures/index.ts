import { claims } from './claims.ts';
import { createTaskOverHttp } from './create-task.ts';
import { exporting } from './export.ts';
import { growth } from './growth.ts';
import { latency } from './latency.ts';
import type { Measure } from './measure.ts';
import { modes } from './modes.ts';
import { noOp } from './no-op.ts';
import { processes } from './processes.ts';
import { statements } from './statements.ts';
import { status } from './status.ts';
import { submit } from './submit.ts';
import { waiting } from './waiting.ts';

/** In the order in which they are taken. */
export const MEASURES: readonly Measure[] = [
  createTaskOverHttp,
  submit,
  noOp,
  waiting,
  processes,
  latency,
  modes,
  statements,
  status,
  claims,
  exporting,
  growth,
];
