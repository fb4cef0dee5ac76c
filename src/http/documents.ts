import { type Context, Hono } from 'hono';
import { v7 as uuidv7 } from 'uuid';
import type { Document } from '../documents/document.ts';
import {
  deleteDocument,
  getDocument,
  insertDocuments,
  listDocuments,
  readContentSlice,
} from '../documents/document-store.ts';
import { UploadSpool } from '../documents/upload-spool.ts';
import { describeError } from '../log.ts';
import type { AppDependencies } from './app.ts';
import { mediaTypeOf, readChunks, refuseEncodedBody } from './body.ts';
import { receiveMultipart, type Upload } from './multipart.ts';
import { notFound, Problem } from './problem.ts';
import { optional, page, parseId, parseQuery, projectId, text, toPage } from './schemas.ts';
import { streamBody } from './stream-body.ts';

/** The document store over HTTP. */
export function documents({ sql, config, log }: AppDependencies): Hono {
  const app = new Hono();

  app.post('/', async (c) => {
    const spool = await UploadSpool.open();
    try {
      const upload = await receiveUpload(c, spool);
      const stored = await insertDocuments(sql, {
        projectId: upload.projectId,
        documents: upload.files.map((file) => ({
          documentId: uuidv7(),
          filename: file.filename,
          mediaType: file.mediaType,
          byteSize: file.byteSize,
          sha256: file.sha256,
          chunks: () => spool.read(file),
        })),
      });
      return c.json({ data: stored }, 201);
    } finally {
      await spool.close();
    }
  });

  app.get('/', async (c) => {
    const query = parseQuery(c, { projectId: optional(projectId), ...page });
    const { limit, cursor } = query;
    const found = await listDocuments(sql, { projectId: query.projectId, after: cursor, limit: limit + 1 });
    return c.json(toPage(found, limit, (document) => document.documentId));
  });

  app.get('/:documentId', async (c) => {
    parseQuery(c, {});
    return c.json((await find(c)).document);
  });

  app.get('/:documentId/content', async (c) => {
    parseQuery(c, {});
    const { document, storageKey } = await find(c);
    const headers = downloadHeaders(document);
    if (c.req.header('if-none-match') === headers.ETag) return c.body(null, 304, headers);
    if (c.req.method === 'HEAD' || document.byteSize === 0) return c.body(null, 200, headers);
    const { documentId, byteSize } = document;
    const content = streamBody(c, readSlices(storageKey, byteSize), (error) => {
      log.error('download broken off', { documentId, error: describeError(error) });
    });
    return c.body(content, 200, headers);
  });

  app.delete('/:documentId', async (c) => {
    parseQuery(c, {});
    const documentId = parseId(c, 'documentId');
    if ((await deleteDocument(sql, documentId)) === 'unknown') throw notFound('document', documentId);
    return c.body(null, 204);
  });

  /** All of the request is read before a transaction begins: a slow client must not hold one open. */
  async function receiveUpload(c: Context, spool: UploadSpool): Promise<Upload> {
    const request = c.req.raw;
    refuseEncodedBody(request);
    const mediaType = mediaTypeOf(request);
    if (mediaType === 'multipart/form-data') {
      parseQuery(c, {});
      return await receiveMultipart(request, spool, config);
    }
    if (mediaType.startsWith('multipart/')) {
      throw new Problem(415, 'unsupported_media_type', 'send multipart/form-data, or the bytes of one file', {
        headers: { Accept: 'multipart/form-data, */*' },
      });
    }
    const query = parseQuery(c, { projectId, filename: optional(text(0, 2000)) });
    const limit = { maxBytes: config.maxDocumentBytes, code: 'document_too_large', what: 'a document' };
    const file = await spool.add(query.filename ?? '', readChunks(request, limit));
    return { projectId: query.projectId, files: [file] };
  }

  async function find(c: Context): Promise<{ document: Document; storageKey: string }> {
    const documentId = parseId(c, 'documentId');
    const found = await getDocument(sql, documentId);
    if (found === undefined) throw notFound('document', documentId);
    return found;
  }

  /** A document deleted meanwhile breaks the download off. */
  async function* readSlices(storageKey: string, byteSize: number): AsyncGenerator<Uint8Array, void, undefined> {
    const length = 1024 * 1024;
    for (let offset = 0; offset < byteSize; ) {
      const slice = await readContentSlice(sql, { storageKey, offset, length });
      if (slice === undefined || slice.length === 0) throw new Error('the document was deleted');
      yield slice;
      offset += slice.length;
    }
  }

  return app;
}

/** Saved under its own name (RFC 6266) and never shown as a page of ours, whatever the bytes are. */
function downloadHeaders(document: Document) {
  const plain = document.filename.replaceAll(/[^\x20-\x7e]|["\\%]/g, '_');
  const encoded = encodeURIComponent(document.filename).replaceAll(
    /['()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return {
    'Content-Type': document.mediaType,
    'Content-Length': String(document.byteSize),
    'Content-Disposition': `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`,
    'X-Content-Type-Options': 'nosniff',
    ETag: `"${document.sha256}"`,
  };
}
