import { type ExtractionError, permanent } from '../../errors.ts';
import { isObject, type JsonObject, objectIn, reasonIn, textIn, tryObject } from './answers.ts';
import {
  configuration,
  DEFAULT_WAIT_MS,
  defer,
  parseFailure,
  QUOTA_WAIT_MS,
  retryAfterMs,
  statusError,
  TaskForgotten,
  transient,
} from './failures.ts';
import type { HttpAnswer } from './http.ts';

/** The deployment cannot do what it is asked for, whatever the paper: an operator chooses another tier or starts an engine. */
const SET_UP = new Set([
  'feature_requires_api_key',
  'file_permission_denied',
  'invalid_api_key',
  'list_requires_api_key',
  'model_not_found',
  'model_preload_dependency_missing',
  'model_preload_device_unavailable',
  'model_preload_files_missing',
  'no_engine',
  'parse_server_model_not_ready',
  'quality_tier_unavailable',
  'tier_mismatch',
  'tier_unsupported_for_file_type',
  'tier_unsupported_for_remote',
  'unsupported_output_format',
  'unsupported_source',
]);

const FORGOTTEN = new Set(['file_not_found', 'job_not_found', 'upload_expired', 'upload_not_found']);

/** Codes that are ours already, from reading PDFs without MinerU. */
const DOCUMENT = new Map([
  ['file_corrupted', 'pdf_invalid'],
  ['file_encrypted', 'pdf_password'],
  ['file_too_large', 'mineru_document_too_large'],
  ['parse_empty', 'document_empty'],
]);

/** What an answer of 4.x with an error status means. */
export function jobsAnswerError(answer: HttpAnswer): ExtractionError | TaskForgotten {
  const error = objectIn(tryObject(answer), 'error');
  return jobsError(error, answer) ?? statusError(answer, reasonIn(answer));
}

/** What the error of a job or of its file means, which comes inside a 200. */
export function jobError(error: unknown, fallback: string): ExtractionError | TaskForgotten {
  const message = textIn(error, 'message') ?? '';
  return (
    (isObject(error) ? jobsError(error) : undefined) ??
    parseFailure(message) ??
    transient('mineru_parse_failed', `${fallback}: ${message}`)
  );
}

/**
 * By the code where it names a set-up, a quota, a loss or the document; else by `retryable`, which is obeyed; else by what
 * the code or the type is known for. Undefined: the status or the text must tell.
 */
function jobsError(error: JsonObject, answer?: HttpAnswer): ExtractionError | TaskForgotten | undefined {
  const code = textIn(error, 'code') ?? '';
  const type = textIn(error, 'type') ?? '';
  const message = textIn(error, 'message') ?? '';
  const said = `MinerU reports ${code === '' ? 'an error' : code}: ${message}`;
  const wait = answer === undefined ? undefined : retryAfterMs(answer.headers);

  if (FORGOTTEN.has(code)) return new TaskForgotten();
  if (code === 'quota_exceeded') return defer('mineru_quota', said, wait ?? QUOTA_WAIT_MS);
  if (code === 'rate_limit_exceeded' || type === 'rate_limit_error' || code === 'server_busy') {
    return defer('mineru_busy', said, wait ?? DEFAULT_WAIT_MS);
  }
  if (SET_UP.has(code)) return configuration('mineru_options', said);
  if (type === 'authentication_error' || type === 'permission_error') return configuration('mineru_unauthorized', said);
  const documentCode = DOCUMENT.get(code);
  if (documentCode !== undefined) return permanent(documentCode, said);

  if (error.retryable === true) {
    return wait === undefined ? transient('mineru_server_error', said) : defer('mineru_busy', said, wait);
  }
  const failure = parseFailure(message);
  if (error.retryable === false) {
    return failure?.errorClass === 'permanent' ? failure : permanent('mineru_rejected', said);
  }
  // Early 4.x says `parse_failed` for everything, an exhausted GPU too, and does not say whether to try again.
  if (code === 'parse_failed') return failure ?? permanent('mineru_rejected', said);
  if (code === 'parse_oom' || code === 'parse_timeout') return transient('mineru_out_of_resources', said);
  // The bytes were changed on their way: the next upload may be whole.
  if (code === 'bytes_mismatch' || code === 'file_hash_mismatch') return transient('mineru_bad_upload', said);
  if (code === 'upload_not_ready' || code === 'upload_already_terminal') return transient('mineru_bad_upload', said);
  return undefined;
}
