import { limits } from '../../support/fixtures.ts';

/** Few, so that runs come to the last one. */
export const MAX_ATTEMPTS = 3;
/** No heartbeat lapses but those that the run lets lapse. */
export const jobLimits = { ...limits, heartbeatSeconds: 1800, maxAttempts: MAX_ATTEMPTS };
/** Has all documents of the run. In fan-out mode there is a project of its own for each number of them too. */
export const PROJECT = 'interleaved';
export const projectOf = (documents: number): string => `${PROJECT}-${documents}`;
/** Documents of a manager's chunk. */
export const CHUNK = 2;
/** Far beyond what a run takes, and far below what a backdated row shows. */
export const STALE_AFTER_MS = 30 * 60 * 1000;
