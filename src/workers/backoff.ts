/**
 * Exponential backoff with jitter: the base doubled for each failed attempt before, bounded, and of that a random part
 * between a half and the whole, so that what failed together does not come back together.
 *
 * @param failedAttempts how many attempts have failed by now, the present one included: 1 or more
 */
export function backoffMs(failedAttempts: number, options: { baseMs: number; maxMs: number }): number {
  const full = Math.min(options.maxMs, options.baseMs * 2 ** (failedAttempts - 1));
  return Math.round(full * (0.5 + Math.random() / 2));
}
