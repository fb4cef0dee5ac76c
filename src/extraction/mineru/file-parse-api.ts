import { reasonIn } from './answers.ts';
import type { Convert } from './dialect.ts';
import { parseError, statusError } from './failures.ts';
import { outputIn, parseForm } from './tasks-api.ts';

/**
 * How long the one request of 2.x may take. Node's `fetch` gives up on an answer's headers after 300 seconds, whatever the
 * signal says, and 2.x sends them only when the paper is parsed; a limit just below makes it our own error, with a name.
 * Papers that take longer need 3.x.
 */
export const SYNCHRONOUS_LIMIT_MS = 290_000;

/**
 * 2.x, which has only the synchronous `POST /file_parse`: one request that lasts as long as the parse. It answers 503 when
 * busy, 500 when a parse failed and 400 when it could not load the file, both with free text.
 */
export const convertByFileParse: Convert = async (conversion) => {
  const answer = await conversion.http.send(
    { method: 'POST', url: 'file_parse', body: parseForm(conversion), timeoutMs: SYNCHRONOUS_LIMIT_MS },
    conversion.signal,
  );
  if (answer.status === 200) return outputIn(answer);
  const reason = reasonIn(answer);
  // Its own 500 always gives a reason; one without is a proxy's. 409 is the same of the route that 3.x keeps.
  if ((answer.status === 500 && reason !== '') || answer.status === 409) throw parseError(reason);
  throw statusError(answer, reason);
};
