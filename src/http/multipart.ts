import { Busboy, type BusboyFileStream, type BusboyInstance } from '@fastify/busboy';
import * as v from 'valibot';
import type { SpooledFile, UploadSpool } from '../documents/upload-spool.ts';
import { readChunks } from './body.ts';
import { type Fault, invalidRequest, Problem } from './problem.ts';
import { projectId as projectIdSchema } from './schemas.ts';

export type UploadLimits = { maxDocumentBytes: number; maxUploadBytes: number; maxUploadFiles: number };
export type Upload = { projectId: string; files: SpooledFile[] };

/**
 * Takes in a `multipart/form-data` upload: one field `projectId`, any number of files in `files`, in any order. What is too
 * large, too many or unknown ends it there and then; what is missing is told at the end.
 *
 * @throws Problem 400 or 413; nothing goes on in the background then, and the spool may be closed
 */
export async function receiveMultipart(request: Request, spool: UploadSpool, limits: UploadLimits): Promise<Upload> {
  const parser = createParser(request, limits.maxUploadFiles);
  const projectIds: string[] = [];
  const files: SpooledFile[] = [];
  const open = new Set<BusboyFileStream>();
  const failure = Promise.withResolvers<never>();
  failure.promise.catch(() => {});
  const fail = failure.reject;
  // The parser can be at several small files at once; the spool takes one after the other.
  let spooled = Promise.resolve();

  // The listener stays for good: the parser reports one broken body more than once.
  parser.on('error', (error) => fail(malformed(error)));
  parser.on('filesLimit', () => {
    fail(new Problem(413, 'too_many_files', `an upload may have at most ${limits.maxUploadFiles} files`));
  });
  parser.on('fieldsLimit', () => fail(invalidRequest([{ path: 'projectId', message: 'is given more than once' }])));
  parser.on('field', (name: string | undefined, value, _nameTruncated, valueTruncated) => {
    if (name === 'projectId') projectIds.push(valueTruncated ? '\0' : value);
    else fail(invalidRequest([misplacedField(name)]));
  });
  parser.on('file', (name: string | undefined, stream, filename: string | undefined) => {
    open.add(stream);
    stream.on('error', () => {});
    if (name !== 'files') return fail(invalidRequest([misplacedFile(name)]));
    spooled = spooled.then(async () => {
      const chunks = capped(stream, limits.maxDocumentBytes, `files[${files.length}]`);
      files.push(await spool.add(decodeQuotes(filename ?? ''), chunks));
      open.delete(stream);
    });
    spooled.catch(fail);
  });

  const finished = new Promise<void>((resolve) => void parser.on('finish', resolve));
  const chunks = readChunks(request, {
    maxBytes: limits.maxUploadBytes,
    code: 'upload_too_large',
    what: 'an upload',
  });
  try {
    for (;;) {
      const next = chunks.next();
      next.catch(() => {});
      const { done, value } = await Promise.race([next, failure.promise]);
      if (done) break;
      if (!parser.write(value)) await Promise.race([drained(parser), failure.promise]);
    }
    parser.end();
    await Promise.race([finished, failure.promise]);
    await Promise.race([spooled, failure.promise]);
  } finally {
    // After a failure: not awaited, since the client may be slow to send the chunk that is asked for already.
    void chunks.return().catch(() => {});
    for (const stream of open) stream.destroy(new Error('the upload has ended'));
    await spooled.catch(() => {});
  }
  return { projectId: checkForm(projectIds, files), files };
}

function createParser(request: Request, maxFiles: number): BusboyInstance {
  try {
    return new Busboy({
      headers: { 'content-type': request.headers.get('content-type') ?? '' },
      limits: { files: maxFiles, fields: 2, fieldSize: 2000, headerPairs: 50, headerSize: 16 * 1024 },
    });
  } catch (cause) {
    throw malformed(cause);
  }
}

function drained(parser: BusboyInstance): Promise<void> {
  return new Promise((resolve) => void parser.once('drain', resolve));
}

async function* capped(stream: BusboyFileStream, maxBytes: number, path: string): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of stream as AsyncIterable<Uint8Array>) {
    bytes += chunk.length;
    if (bytes > maxBytes) {
      const message = `may have at most ${maxBytes} bytes`;
      throw new Problem(413, 'document_too_large', `a document ${message}`, { errors: [{ path, message }] });
    }
    yield chunk;
  }
}

/** Browsers and curl write a quote or a line break inside a file name this way, and no other character. */
function decodeQuotes(filename: string): string {
  return filename.replaceAll(/%22|%0d|%0a/gi, (code) => (code === '%22' ? '"' : ''));
}

function checkForm(projectIds: readonly string[], files: readonly SpooledFile[]): string {
  const faults: Fault[] = [];
  const parsed = v.safeParse(projectIdSchema, projectIds[0]);
  if (projectIds.length > 1) faults.push({ path: 'projectId', message: 'is given more than once' });
  else if (projectIds.length === 0) faults.push({ path: 'projectId', message: 'is required' });
  else if (!parsed.success) faults.push({ path: 'projectId', message: parsed.issues[0].message });
  if (files.length === 0) faults.push({ path: 'files', message: 'must have at least one file' });
  if (faults.length > 0 || !parsed.success) throw invalidRequest(faults);
  return parsed.output;
}

function misplacedField(name: string | undefined): Fault {
  if (name === 'files')
    return { path: 'files', message: 'must be a file, with a filename (curl: -F files=@paper.pdf)' };
  return { path: shownName(name), message: 'is not known' };
}

function misplacedFile(name: string | undefined): Fault {
  if (name === 'projectId') return { path: 'projectId', message: 'must be a text, not a file' };
  return { path: shownName(name), message: 'is not known; files are sent as files' };
}

function shownName(name: string | undefined): string {
  return (name ?? '').toWellFormed().slice(0, 300);
}

function malformed(cause: unknown): Problem {
  return new Problem(400, 'malformed_multipart', 'the request body is not complete multipart/form-data', {
    errors: [{ path: '', message: 'is not complete multipart/form-data with the boundary that Content-Type names' }],
    cause,
  });
}
