import type { Tx } from '../db.ts';
import type { Expansion } from './expand-task.ts';

/** What a result keeps of its document; nulls for one that is gone. */
export type ChunkDocument = {
  documentId: string;
  storageKey: string | null;
  filename: string | null;
  mediaType: string | null;
};

/** The next documents of a task, in order: by its list, or all of its project in the order of their arrival. */
export async function readChunk(
  tx: Tx,
  task: Expansion,
  size: number,
): Promise<{ documents: ChunkDocument[]; isLast: boolean }> {
  return task.listed ? await readList(tx, task, size) : await readProject(tx, task, size);
}

/**
 * PostgreSQL takes the slice: the whole list never comes here. And it takes it once, in a CTE: in the list of columns, a look at
 * the list would unpack its megabytes for every row. Each document is looked up by its key.
 */
async function readList(tx: Tx, { taskId, projectId, nextPosition }: Expansion, size: number) {
  const rows = await tx<(ChunkDocument & { isLast: boolean })[]>`
    with slice as materialized (
      select
        document_ids[${nextPosition + 1}::int:${nextPosition + size}::int] as document_ids,
        ${nextPosition + size} >= cardinality(document_ids) as is_last
      from asl_schema.fanout_expansion
      where task_id = ${taskId}::uuid
    )
    select
      wanted.document_id as "documentId",
      d.storage_key as "storageKey",
      d.filename,
      d.media_type as "mediaType",
      slice.is_last as "isLast"
    from slice
    cross join lateral unnest(slice.document_ids) with ordinality as wanted (document_id, position)
    left join lateral (
      select storage_key, filename, media_type
      from asl_schema.document
      where id = wanted.document_id
        and project_id = ${projectId}
      limit 1
    ) d on true
    order by wanted.position`;
  const documents = rows.map(({ isLast: _, ...document }) => document);
  return { documents, isLast: rows[0]?.isLast ?? true };
}

/** Only what was there when the first manager began: a project that grows faster than it is read would never end. */
async function readProject(tx: Tx, { taskId, projectId, lastDocumentId }: Expansion, size: number) {
  const documents = await tx<ChunkDocument[]>`
    select id as "documentId", storage_key as "storageKey", filename, media_type as "mediaType"
    from asl_schema.document
    where project_id = ${projectId}
      and created_at <= coalesce(
        (select documents_until from asl_schema.fanout_expansion where task_id = ${taskId}::uuid),
        now()
      )
      ${lastDocumentId === null ? tx`` : tx`and id > ${lastDocumentId}::uuid`}
    order by id
    limit ${size}`;
  return { documents: [...documents], isLast: documents.length < size };
}

/** How many documents a project has by now, counted no further than one beyond `upTo`. */
export async function countProject(tx: Tx, { projectId }: Expansion, upTo: number): Promise<number> {
  const [counted] = await tx<{ count: number }[]>`
    select count(*)::int as count
    from (
      select 1
      from asl_schema.document
      where project_id = ${projectId}
      limit ${upTo + 1}
    ) documents`;
  return counted?.count ?? 0;
}
