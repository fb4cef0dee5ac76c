import { createHash } from 'node:crypto';
import type { ExtractionError } from '../../errors.ts';
import { expectId, expectObject, isObject, listIn, objectIn, textIn, tryObject } from './answers.ts';
import type { Conversion, Convert } from './dialect.ts';
import { badAnswer, TaskForgotten, transient } from './failures.ts';
import type { HttpAnswer, HttpRequest } from './http.ts';
import { jobError, jobsAnswerError } from './jobs-failures.ts';
import { pollUntil, TaskFailed } from './poll.ts';

/**
 * 4.x, self-hosted, below `/v1`: an upload in three steps (or none where the server has the bytes already), a job, a poll,
 * and the outputs as files.
 */
export const convertByJobs: Convert = async (conversion) => {
  const fileId = await upload(conversion);
  const jobId = await createJob(conversion, fileId);
  return await pollUntil(conversion, async () => {
    const file = await pollJob(conversion, jobId);
    if (file === undefined) return undefined;
    // Within the poll, so that a blip costs no more than another poll.
    const outputs = objectIn(file, 'output_files');
    return {
      markdown: await download(conversion, outputs.markdown),
      contentList: await download(conversion, outputs.content_list),
      version: textIn(objectIn(file, 'parse'), 'parser_version'),
    };
  });
};

async function upload(conversion: Conversion): Promise<string> {
  const { content, uploadName } = conversion;
  const created = expectObject(
    await call(conversion, {
      method: 'POST',
      url: 'v1/uploads',
      ...json({
        filename: uploadName,
        bytes: content.byteLength,
        mime_type: 'application/pdf',
        purpose: 'parse',
        sha256sum: createHash('sha256').update(content).digest('hex'),
      }),
    }),
  );
  if (created.status === 'completed') return expectId(created.file, 'id');
  if (created.status !== 'pending') throw badAnswer('an upload status that is not known');
  const uploadId = expectId(created, 'id');
  await call(conversion, { ...uploadTarget(conversion, created, uploadId), body: content });
  return await pollUntil(conversion, () => completeUpload(conversion, uploadId), { atOnce: true });
}

/** "Not ready" is worth another try; "already terminal" is what comes where the answer to an earlier try was lost. */
async function completeUpload(conversion: Conversion, uploadId: string): Promise<string> {
  const { http, signal } = conversion;
  const url = `v1/uploads/${uploadId}`;
  const completed = await http.send({ method: 'POST', url: `${url}/complete`, ...json({}) }, signal);
  if (completed.status === 200) return expectId(expectObject(completed).file, 'id');
  if (errorCode(completed) !== 'upload_already_terminal') throw jobsAnswerError(completed);
  const upload = expectObject(await call(conversion, { method: 'GET', url }));
  if (upload.status !== 'completed') throw new TaskForgotten();
  return expectId(upload.file, 'id');
}

/**
 * Where the bytes go. A self-hosted server names its own route, by the host it believes to have and a scheme that a proxy
 * may have changed; that route is called below the base URL, with the key, which the server demands there. Any other URL is
 * a signed one of a storage.
 */
function uploadTarget({ http }: Conversion, created: unknown, uploadId: string): HttpRequest {
  const told = textIn(created, 'upload_url') ?? '';
  const url = URL.parse(told, http.base.href);
  if (url === null) throw badAnswer('no usable upload_url');
  const method = (textIn(created, 'upload_method') ?? 'PUT').toUpperCase();
  if (method !== 'PUT' && method !== 'POST') throw badAnswer('an upload_method that is not known');
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(objectIn(created, 'upload_headers'))) {
    if (typeof value === 'string') headers[name] = value;
  }
  const own = `/v1/uploads/${uploadId}/content`;
  if (url.search === '' && url.pathname.endsWith(own)) return { method, url: own.slice(1), headers };
  return { method, url, headers, signed: true };
}

async function createJob(conversion: Conversion, fileId: string): Promise<string> {
  const { http, signal } = conversion;
  const submit = (formats: string[]) => {
    const files = [{ source: { type: 'file_id', file_id: fileId } }];
    const tier = conversion.backend === undefined ? {} : { tier: conversion.backend };
    const body = json({ files, output_formats: formats, ...tier });
    return http.send({ method: 'POST', url: 'v1/parse/jobs', ...body }, signal);
  };
  let answer = await submit(['markdown', 'content_list']);
  // A deployment may offer fewer formats; the markdown alone has the text, without its pages.
  if (errorCode(answer) === 'unsupported_output_format') answer = await submit(['markdown']);
  if (answer.status !== 202 && answer.status !== 200) throw jobsAnswerError(answer);
  return expectId(expectObject(answer), 'job_id');
}

/** @returns the one file of the job once it is parsed; undefined while it is not */
async function pollJob(conversion: Conversion, jobId: string): Promise<unknown> {
  const job = expectObject(await call(conversion, { method: 'GET', url: `v1/parse/jobs/${jobId}` }));
  const file = listIn(job, 'files').find(isObject);
  switch (job.status) {
    case 'queued':
    case 'running':
      return undefined;
    case 'completed':
    case 'partial':
      // `partial` speaks of several files; ours is the only one, and has a status of its own.
      if (file?.status === 'completed') return file;
      throw taskEnd(jobError(file?.error ?? job.error, 'MinerU did not parse the document'));
    case 'failed':
      throw taskEnd(jobError(file?.error ?? job.error, 'MinerU could not parse the document'));
    case 'canceled':
      throw new TaskFailed(transient('mineru_canceled', 'the job was cancelled on the server'));
    default:
      throw badAnswer('a job status that is not known');
  }
}

function taskEnd(error: ExtractionError | TaskForgotten): Error {
  return error instanceof TaskForgotten ? error : new TaskFailed(error);
}

async function download(conversion: Conversion, output: unknown): Promise<string | undefined> {
  if (!isObject(output)) return undefined;
  const url = `v1/files/${expectId(output, 'file_id')}/content`;
  return new TextDecoder().decode((await call(conversion, { method: 'GET', url })).bytes);
}

async function call({ http, signal }: Conversion, request: HttpRequest): Promise<HttpAnswer> {
  const answer = await http.send(request, signal);
  if (answer.status >= 200 && answer.status < 300) return answer;
  // A storage's refusal says nothing about our key: its signature may be over, and a new upload brings a new one.
  if (request.signed) throw transient('mineru_bad_upload', `the storage refused the upload (${answer.status})`);
  // What is only looked up was there before; a server that forgot it may say so without its own kind of error.
  if (answer.status === 404 && request.method === 'GET') throw new TaskForgotten();
  throw jobsAnswerError(answer);
}

function errorCode(answer: HttpAnswer): string | undefined {
  return answer.status < 400 ? undefined : textIn(objectIn(tryObject(answer), 'error'), 'code');
}

function json(body: unknown): { headers: Record<string, string>; body: string } {
  return { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
}
