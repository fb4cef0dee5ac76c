import { inTransaction, type Sql, type Tx } from '../db.ts';
import { copyContent } from './copy-content.ts';
import type { Document, MediaType } from './document.ts';

/** A document to be stored. Its bytes are asked for when they are new to the project, one document after the other. */
export type NewDocument = {
  documentId: string;
  filename: string;
  mediaType: MediaType;
  byteSize: number;
  sha256: string;
  chunks: () => AsyncIterable<Uint8Array>;
};

const documentColumns = (sql: Sql | Tx) => sql`
  id as "documentId",
  project_id as "projectId",
  filename,
  media_type as "mediaType",
  byte_size::float8 as "byteSize",
  sha256,
  created_at as "createdAt"`;

/**
 * Stores documents with their bytes, all or none, and returns one for each that was given, in the same order. Bytes that the
 * project holds already are the document it has, name and all: also within one call, and between concurrent ones.
 */
export async function insertDocuments(
  sql: Sql,
  options: { projectId: string; documents: readonly NewDocument[] },
): Promise<Document[]> {
  const { projectId } = options;
  // Of equal bytes the first one counts. Everybody inserts in the order of the hashes: two uploads of the same files in
  // another order would wait for each other.
  const distinct = [...Map.groupBy(options.documents, (document) => document.sha256).values()]
    .flatMap((equal) => equal.slice(0, 1))
    .sort((a, b) => (a.sha256 < b.sha256 ? -1 : 1));

  return await inTransaction(sql, async (tx) => {
    const stored = new Map<string, Document>();
    // One round, but for the case that a document we ran into was deleted before we could read it.
    for (let missing = distinct; missing.length > 0; missing = distinct.filter(({ sha256 }) => !stored.has(sha256))) {
      await insertMissing(tx, projectId, missing);
      for (const document of await findByHash(tx, projectId, missing)) stored.set(document.sha256, document);
    }
    return options.documents.map((document) => stored.get(document.sha256) as Document);
  });
}

/** Decided by the unique constraint, never by a read before: of two concurrent inserts, one waits for the other's commit. */
async function insertMissing(tx: Tx, projectId: string, documents: readonly NewDocument[]): Promise<void> {
  const rows = documents.map(({ chunks: _, ...row }) => row);
  const inserted = await tx<{ id: string }[]>`
    insert into asl_schema.document (id, project_id, filename, media_type, byte_size, sha256, storage_key)
    select r."documentId", ${projectId}, r.filename, r."mediaType", r."byteSize", r.sha256, r."documentId"::text
    from jsonb_to_recordset(${tx.json(rows)})
      as r ("documentId" uuid, filename text, "mediaType" text, "byteSize" bigint, sha256 text)
    order by r.sha256
    on conflict on constraint document_project_sha256_key do nothing
    returning id`;
  const ids = new Set(inserted.map((row) => row.id));
  const fresh = documents.filter(({ documentId }) => ids.has(documentId));
  await copyContent(
    tx,
    fresh.map(({ documentId, byteSize, chunks }) => ({ storageKey: documentId, byteSize, chunks })),
  );
}

async function findByHash(tx: Tx, projectId: string, documents: readonly NewDocument[]): Promise<Document[]> {
  return await tx<Document[]>`
    select ${documentColumns(tx)}
    from asl_schema.document
    where project_id = ${projectId}
      and sha256 = any(${documents.map((document) => document.sha256)}::text[])`;
}

/** Documents in the order of their arrival, by keyset: `after` is the last document id of the page before. */
export async function listDocuments(
  sql: Sql,
  options: { projectId?: string | undefined; after?: string | undefined; limit: number },
): Promise<Document[]> {
  const { projectId, after, limit } = options;
  return await sql<Document[]>`
    select ${documentColumns(sql)}
    from asl_schema.document
    where true
      ${projectId === undefined ? sql`` : sql`and project_id = ${projectId}`}
      ${after === undefined ? sql`` : sql`and id > ${after}::uuid`}
    order by id
    limit ${limit}`;
}

/** One document and the key of its bytes, or undefined. */
export async function getDocument(
  sql: Sql,
  documentId: string,
): Promise<{ document: Document; storageKey: string } | undefined> {
  const [row] = await sql<(Document & { storageKey: string })[]>`
    select ${documentColumns(sql)}, storage_key as "storageKey"
    from asl_schema.document
    where id = ${documentId}::uuid`;
  if (row === undefined) return undefined;
  const { storageKey, ...document } = row;
  return { document, storageKey };
}

/** Bytes that one statement reads. */
const SLICE = 4 * 1024 * 1024;

/**
 * All bytes under a storage key, or undefined when there are none (any more). Read in pieces: PostgreSQL sends bytes as text
 * of twice the length, and a reader of large papers need not hold that as well. Most papers are one piece.
 */
export async function readContent(sql: Sql, storageKey: string): Promise<Uint8Array | undefined> {
  const [row] = await sql<{ byteSize: number; first: Uint8Array }[]>`
    select octet_length(content) as "byteSize", substring(content from 1 for ${SLICE}::int) as first
    from asl_schema.document_content
    where storage_key = ${storageKey}`;
  if (row === undefined || row.first.length === row.byteSize) return row?.first;
  const content = Buffer.allocUnsafeSlow(row.byteSize);
  content.set(row.first);
  for (let offset = row.first.length; offset < content.length; ) {
    const slice = await readContentSlice(sql, { storageKey, offset, length: SLICE });
    if (slice === undefined || slice.length === 0) return undefined;
    content.set(slice, offset);
    offset += slice.length;
  }
  return content;
}

/**
 * A piece of the bytes under a storage key, or undefined when there are none (any more). `content` is stored uncompressed,
 * so PostgreSQL reads only the pages of the piece.
 */
export async function readContentSlice(
  sql: Sql,
  slice: { storageKey: string; offset: number; length: number },
): Promise<Uint8Array | undefined> {
  const [row] = await sql<{ content: Uint8Array }[]>`
    select substring(content from ${slice.offset + 1}::int for ${slice.length}::int) as content
    from asl_schema.document_content
    where storage_key = ${slice.storageKey}`;
  return row?.content;
}

/**
 * Removes a document, its bytes, and the texts that were parsed from them unless another document has the same bytes.
 * Results keep what they have extracted, and a running task ends without this paper.
 */
export async function deleteDocument(sql: Sql, documentId: string): Promise<'deleted' | 'unknown'> {
  const removed = await sql`
    with removed as (
      delete from asl_schema.document
      where id = ${documentId}::uuid
      returning id, storage_key, sha256
    ), emptied as (
      delete from asl_schema.document_content
      where storage_key in (select storage_key from removed)
    ), forgotten as (
      delete from asl_schema.parsed_text
      where sha256 in (select sha256 from removed)
        and not exists (
          select 1
          from asl_schema.document other
          join removed on other.sha256 = removed.sha256
          where other.id <> removed.id
        )
    )
    select storage_key from removed`;
  return removed.length === 0 ? 'unknown' : 'deleted';
}
