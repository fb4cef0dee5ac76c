import { limits } from '../../support/fixtures.ts';

/** Few, so that runs come to the last one. */
export const MAX_ATTEMPTS = 3;
/** No heartbeat lapses but those that the run lets lapse. */
export const jobLimits = { ...limits, heartbeatSeconds: 1800, maxAttempts: MAX_ATTEMPTS };
export const PROJECT = 'interleaved';
/** Far beyond what a run takes, and far below what a backdated row shows. */
export const STALE_AFTER_MS = 30 * 60 * 1000;
