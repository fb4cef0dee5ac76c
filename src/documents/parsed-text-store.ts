import type { Sql } from '../db.ts';
import type { DocumentText } from '../extraction/document-text.ts';
import { storableJson } from '../storable.ts';

/** What shapes a parsed text: the paper's bytes, and who read them and how. */
export type ParsedTextKey = { sha256: string; parser: string; version: string };

/** The text that was made of these bytes before, or undefined. Rides on the primary key. */
export async function readParsedText(sql: Sql, key: ParsedTextKey): Promise<DocumentText | undefined> {
  const [row] = await sql<{ document: DocumentText }[]>`
    select document
    from asl_schema.parsed_text
    where sha256 = ${key.sha256}
      and parser = ${key.parser}
      and version = ${key.version}`;
  return row?.document;
}

/** Keeps a text for others. Of two that parsed the same paper at once the first one's stays: both are as good. */
export async function keepParsedText(sql: Sql, key: ParsedTextKey, text: DocumentText): Promise<void> {
  await sql`
    insert into asl_schema.parsed_text (sha256, parser, version, document)
    values (${key.sha256}, ${key.parser}, ${key.version}, ${sql.json(storableJson(text))})
    on conflict on constraint parsed_text_pkey do nothing`;
}
