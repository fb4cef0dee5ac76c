import { type ExtractionError, permanent } from '../../errors.ts';
import { type JsonObject, textIn } from './answers.ts';
import { configuration, defer, QUOTA_WAIT_MS, TaskForgotten, transient } from './failures.ts';

type Kind = 'configuration' | 'permanent' | 'transient' | 'again' | 'quota';

/** The cloud's codes, which come inside a 200; https://mineru.net/apiManage/docs lists them. */
const KINDS: Readonly<Record<string, Kind>> = {
  A0202: 'configuration', // the token is wrong
  A0211: 'configuration', // the token has expired
  '-60013': 'configuration', // no permission for this task
  '-500': 'permanent', // parameters
  '-10002': 'permanent', // parameters
  '-60002': 'permanent', // the file's format is not known
  '-60003': 'permanent', // the file cannot be read
  '-60004': 'permanent', // the file is empty
  '-60005': 'permanent', // the file is too large
  '-60006': 'permanent', // too many pages
  '-60015': 'permanent', // the file cannot be converted
  '-60016': 'permanent', // the file cannot be converted to the asked format
  '-60017': 'permanent', // tried too often
  '-10001': 'transient', // the service failed
  '-60001': 'transient', // no upload URL
  '-60007': 'transient', // the model is not there
  '-60008': 'transient', // reading the file timed out
  '-60009': 'transient', // the queue is full
  '-60010': 'transient', // the parse failed
  '-60020': 'transient', // splitting the file failed
  '-60011': 'again', // no valid file was uploaded
  '-60012': 'again', // no such task
  '-60018': 'quota', // the day's limit of tasks
  '-60019': 'quota', // the day's limit of HTML
};

const PERMANENT_CODES: Readonly<Record<string, string>> = {
  '-60003': 'pdf_invalid',
  '-60004': 'document_empty',
  '-60005': 'mineru_document_too_large',
};

/**
 * What an answer of the cloud reports, if it reports an error: `code ≠ 0`, or `{ success: false, msgCode }` from the gateway
 * before it. A code that is not known is transient.
 */
export function cloudError(body: JsonObject): ExtractionError | TaskForgotten | undefined {
  const code = textIn(body, 'msgCode') ?? (typeof body.code === 'number' ? String(body.code) : textIn(body, 'code'));
  if (body.success !== false && (code === undefined || code === '0')) return undefined;
  const said = `MinerU reports ${code ?? 'an error'}: ${textIn(body, 'msg') ?? ''}`;
  switch (KINDS[code ?? '']) {
    case 'configuration':
      return configuration('mineru_unauthorized', said);
    case 'permanent':
      return permanent(PERMANENT_CODES[code ?? ''] ?? 'mineru_rejected', said);
    case 'again':
      return new TaskForgotten();
    case 'quota':
      return defer('mineru_quota', said, QUOTA_WAIT_MS);
    default:
      return transient('mineru_server_error', said);
  }
}
