import {
  expectId,
  expectObject,
  isObject,
  type JsonObject,
  listIn,
  objectIn,
  reasonIn,
  textIn,
  tryJson,
  tryObject,
} from './answers.ts';
import { cloudError } from './cloud-failures.ts';
import { type Conversion, type Convert, cloudPath } from './dialect.ts';
import { badAnswer, parseError, statusError, TaskForgotten, transient } from './failures.ts';
import type { HttpRequest } from './http.ts';
import type { ParseOutput } from './parsed-document.ts';
import { pollUntil, TaskFailed } from './poll.ts';
import { readZip } from './zip.ts';

/**
 * mineru.net's v4 (`/api/v4`): a batch of one file gets a signed URL to put the bytes at, starts by itself when they are
 * there, and ends with the signed URL of an archive.
 */
export const convertByCloud: Convert = async (conversion) => {
  const { http, content, uploadName, backend, language, signal } = conversion;
  const batch = await call(conversion, {
    method: 'POST',
    url: cloudPath(http.base, 'file-urls/batch'),
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      files: [{ name: uploadName, data_id: crypto.randomUUID() }],
      ...(backend === undefined ? {} : { model_version: backend }),
      ...(language === undefined ? {} : { language }),
    }),
  });
  const batchId = expectId(batch, 'batch_id');
  const [uploadUrl] = listIn(batch, 'file_urls');
  if (typeof uploadUrl !== 'string') throw badAnswer('no URL to upload to');

  // The signature covers the headers: a Content-Type, which `fetch` adds to none of these bytes, would break it.
  const uploaded = await http.send({ method: 'PUT', url: uploadUrl, body: content, signed: true }, signal);
  if (uploaded.status < 200 || uploaded.status > 299) {
    throw transient('mineru_bad_upload', `the storage refused the upload (${uploaded.status})`);
  }
  return await pollUntil(conversion, () => pollBatch(conversion, batchId));
};

async function pollBatch(conversion: Conversion, batchId: string): Promise<ParseOutput | undefined> {
  const url = cloudPath(conversion.http.base, `extract-results/batch/${batchId}`);
  const batch = await call(conversion, { method: 'GET', url });
  const result = listIn(batch, 'extract_result').find(isObject);
  switch (result?.state) {
    // The list is empty for a moment after the upload.
    case undefined:
    case 'waiting-file':
    case 'pending':
    case 'running':
    case 'converting':
      return undefined;
    case 'done':
      return await fetchArchive(conversion, textIn(result, 'full_zip_url'));
    case 'failed':
      throw new TaskFailed(parseError(textIn(result, 'err_msg') ?? ''));
    default:
      throw badAnswer('a state that is not known');
  }
}

/** A link that is refused is asked for again with the next poll: its signature may be over. */
async function fetchArchive({ http, signal }: Conversion, url: string | undefined): Promise<ParseOutput> {
  if (url === undefined) throw badAnswer('a result without an archive');
  const answer = await http.send({ method: 'GET', url, signed: true }, signal);
  if (answer.status !== 200) throw transient('mineru_bad_answer', `the archive cannot be had (${answer.status})`);
  const files = await readZip(answer.bytes, (name) => /(?:^|\/)full\.md$|_content_list\.json$/.test(name));
  const textOf = (pattern: RegExp): string | undefined => {
    const found = [...files].find(([name]) => pattern.test(name));
    return found === undefined ? undefined : new TextDecoder().decode(found[1]);
  };
  return { markdown: textOf(/full\.md$/), contentList: tryJson(textOf(/_content_list\.json$/) ?? '') };
}

/** One call of the API proper, whose errors come with any status, 200 as well. */
async function call({ http, signal }: Conversion, request: HttpRequest): Promise<JsonObject> {
  const answer = await http.send(request, signal);
  // A gateway's code for "too many requests" is in no list; its status and its Retry-After are plain.
  if (answer.status === 429 || (answer.status >= 500 && answer.headers.has('retry-after'))) {
    throw statusError(answer, reasonIn(answer));
  }
  const error = cloudError(tryObject(answer) ?? {});
  if (error !== undefined) throw error;
  if (answer.status === 404 && request.method === 'GET') throw new TaskForgotten();
  if (answer.status !== 200) throw statusError(answer, reasonIn(answer));
  return objectIn(expectObject(answer), 'data');
}
