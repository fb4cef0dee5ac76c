import type { Writable } from 'node:stream';
import type { Tx } from '../db.ts';

/** The bytes of one document, to lie under a key of document_content. */
export type NewContent = { storageKey: string; byteSize: number; chunks: () => AsyncIterable<Uint8Array> };

/**
 * Writes the bytes of documents, chunk by chunk. COPY in its binary format is the one way into a `bytea` that takes a stream:
 * as a parameter, 50 MB of document are 500 MB of process.
 *
 * The format: https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format".
 */
export async function copyContent(tx: Tx, contents: readonly NewContent[]): Promise<void> {
  if (contents.length === 0) return;
  const copy = await tx`copy asl_schema.document_content (storage_key, content) from stdin (format binary)`.writable();
  const broken = Promise.withResolvers<never>();
  broken.promise.catch(() => {});
  copy.on('error', broken.reject);
  try {
    await Promise.race([writeRows(copy, contents), broken.promise]);
  } catch (error) {
    copy.destroy(error as Error);
    throw error;
  }
  // Every byte has left, so this ends the COPY at once. The stream says nothing when the server refuses at the very end (a
  // full disk); the next statement of the transaction does, and it is asked for what we want to know anyway.
  copy.end();
  const [row] = await tx<{ count: number }[]>`
    select count(*)::int as count
    from asl_schema.document_content
    where storage_key = any(${contents.map((content) => content.storageKey)}::text[])`;
  if (row?.count !== contents.length) throw new Error(`${row?.count} of ${contents.length} contents were written`);
}

async function writeRows(copy: Writable, contents: readonly NewContent[]): Promise<void> {
  const header = Buffer.alloc(19);
  header.write('PGCOPY\n\xff\r\n\0', 'latin1');
  await write(copy, header);
  for (const { storageKey, byteSize, chunks } of contents) {
    const key = Buffer.from(storageKey);
    const head = Buffer.alloc(2 + 4 + key.length + 4);
    head.writeInt16BE(2, 0);
    head.writeInt32BE(key.length, 2);
    key.copy(head, 6);
    head.writeInt32BE(byteSize, 6 + key.length);
    await write(copy, head);
    for await (const chunk of chunks()) await write(copy, chunk);
  }
  const end = Buffer.alloc(2);
  end.writeInt16BE(-1);
  await write(copy, end);
}

/** Resolves when the chunk has left the process: never more than one is in memory. */
async function write(copy: Writable, chunk: Uint8Array): Promise<void> {
  if (copy.destroyed) throw new Error('the copy has ended early');
  await new Promise<void>((resolve, reject) => {
    copy.write(chunk, (error) => (error ? reject(error) : resolve()));
  });
}
