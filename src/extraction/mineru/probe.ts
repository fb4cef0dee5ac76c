import type { ExtractionError } from '../../errors.ts';
import { objectIn, reasonIn, textIn, tryObject } from './answers.ts';
import { cloudError } from './cloud-failures.ts';
import { cloudPath, type DialectName } from './dialect.ts';
import { configuration, statusError, TaskForgotten } from './failures.ts';
import type { Http, HttpAnswer } from './http.ts';
import { jobsAnswerError } from './jobs-failures.ts';

/** What answers at the base URL. `version` is the server's own, where it tells one before a parse. */
export type Server = { dialect: DialectName; version: string | undefined };

export type WantedDialect = 'auto' | 'v3' | 'v4' | 'cloud';

/** The versions of the tasks' protocol that differ in nothing that is used here: 3.0 to 3.2.0 speak 1, later ones 2. */
const TASK_PROTOCOLS = [1, 2];

/**
 * Finds out by a few cheap requests which API a server speaks: 4.x by `/v1/health`, 3.x by `/health` with its protocol
 * version, 2.x by its one route, the cloud by its way to report errors.
 *
 * @throws ExtractionError `mineru_wrong_server` (configuration) where nothing known answers; an answer that means "not now"
 *   is thrown as what it is, so that a server that starts up is not taken for a wrong one
 */
export async function probe(http: Http, wanted: WantedDialect, signal: AbortSignal): Promise<Server> {
  if (wanted === 'cloud') return { dialect: 'cloud', version: undefined };
  if (wanted === 'auto' && http.base.pathname.endsWith('/api/v4/')) return { dialect: 'cloud', version: undefined };
  const get = (url: string) => http.send({ method: 'GET', url }, signal);

  if (wanted === 'auto' || wanted === 'v4') {
    const answer = await get('v1/health');
    const health = tryObject(answer);
    if (answer.status === 200 && textIn(health, 'status') === 'ok') {
      return { dialect: 'v4', version: textIn(health, 'version') };
    }
    if (isUnwell(answer)) throw withoutLoss(jobsAnswerError(answer));
  }
  if (wanted === 'auto' || wanted === 'v3') {
    const answer = await get('health');
    const health = tryObject(answer);
    if (answer.status === 200 && textIn(health, 'status') === 'healthy') {
      const protocol = Number(health?.protocol_version);
      if (!TASK_PROTOCOLS.includes(protocol)) {
        throw configuration('mineru_wrong_server', `MinerU speaks version ${protocol} of its protocol, unknown here`);
      }
      return { dialect: 'v3', version: textIn(health, 'version') };
    }
    if (isUnwell(answer)) throw statusError(answer, reasonIn(answer));
    // The route exists for POST only: asked with GET it says 405, and is not set to work.
    const route = await get('file_parse');
    if (route.status === 405) return { dialect: 'v2', version: undefined };
    if (isUnwell(route)) throw statusError(route, reasonIn(route));
  }
  if (wanted === 'auto') {
    // Nobody's batch: whatever the cloud says to it, it says in its own way.
    const body = tryObject(await get(cloudPath(http.base, `extract-results/batch/${crypto.randomUUID()}`)));
    if (body !== undefined && (cloudError(body) !== undefined || 'extract_result' in objectIn(body, 'data'))) {
      return { dialect: 'cloud', version: undefined };
    }
  }
  throw configuration('mineru_wrong_server', 'no MinerU that is known here answers at its base URL');
}

/** Something is there that cannot or will not answer, which is other than "no such route". */
function isUnwell({ status }: HttpAnswer): boolean {
  return status === 401 || status === 403 || status === 408 || status === 425 || status === 429 || status >= 500;
}

function withoutLoss(error: ExtractionError | TaskForgotten): ExtractionError {
  return error instanceof TaskForgotten ? configuration('mineru_wrong_server', 'no MinerU answers there') : error;
}
