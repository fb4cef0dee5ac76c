/** Nobody is believed who asks for a longer wait: a clock that is wrong by years must not put a paper to sleep for them. */
const MAX_WAIT_MS = 24 * 60 * 60 * 1000;

/**
 * How long a server asks to wait, in milliseconds: `retry-after-ms`, else `retry-after` in seconds or as an HTTP date
 * (RFC 9110, section 10.2.3). At most a day.
 *
 * Undefined where there is no such header, where it makes no sense, and where it asks for no wait at all: a server that
 * fails and says "again, at once" would else be asked without end, since waiting on request spends no attempt.
 */
export function retryAfterMs(headers: Headers, now = Date.now()): number | undefined {
  const milliseconds = toNumber(headers.get('retry-after-ms'));
  if (milliseconds !== undefined) return bounded(milliseconds);
  const text = headers.get('retry-after');
  const seconds = toNumber(text);
  if (seconds !== undefined) return bounded(seconds * 1000);
  return text === null || !/[a-z]/i.test(text) ? undefined : bounded(Date.parse(text) - now);
}

function toNumber(text: string | null): number | undefined {
  return text !== null && /^\s*\d{1,15}(?:\.\d{1,6})?\s*$/.test(text) ? Number(text) : undefined;
}

function bounded(waitMs: number): number | undefined {
  return waitMs >= 1 ? Math.min(Math.ceil(waitMs), MAX_WAIT_MS) : undefined;
}
