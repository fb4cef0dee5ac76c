import type { Sql } from '../db.ts';
import { groupCalls } from '../group-calls.ts';
import { readContent } from './document-store.ts';

/** All bytes under a storage key, or undefined when there are none (any more). */
export type ContentReader = (storageKey: string) => Promise<Uint8Array | undefined>;

/** Papers of up to this many bytes are read together, so many at a time; a larger one is a statement's work anyway. */
const SMALL_BYTES = 64 * 1024;
const GROUP = 100;

/** Reads the papers of this process, small ones that are wanted at the same time in one statement. */
export function createContentReader(sql: Sql): ContentReader {
  type Read = { content: Uint8Array | undefined };
  const read = groupCalls<string, Read>({
    // Results that were claimed together ask together.
    gather: true,
    take: (queue) => queue.splice(0, GROUP),
    async together(storageKeys) {
      const rows = await sql<{ storageKey: string; content: Uint8Array | null }[]>`
        select
          storage_key as "storageKey",
          case when octet_length(content) <= ${SMALL_BYTES}::int then content end as content
        from asl_schema.document_content
        where storage_key = any(${storageKeys}::text[])`;
      const found = new Map(rows.map((row) => [row.storageKey, row.content]));
      return storageKeys.map((storageKey) => {
        const content = found.get(storageKey);
        return content === null ? undefined : { content };
      });
    },
    alone: async (storageKey) => ({ content: await readContent(sql, storageKey) }),
  });
  return async (storageKey) => (await read(storageKey)).content;
}
