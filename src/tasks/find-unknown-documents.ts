import type { Tx } from '../db.ts';
import type { UnknownDocuments } from './task-mode.ts';

/** Which of the documents are not in the project, in the order of the request; undefined when all are. */
export async function findUnknownDocuments(
  tx: Tx,
  request: { projectId: string; documentIds: readonly string[] },
): Promise<UnknownDocuments | undefined> {
  const unknown = await tx<{ documentId: string; count: number }[]>`
    select wanted.document_id as "documentId", count(*) over ()::int as count
    from unnest(${request.documentIds as string[]}::uuid[]) with ordinality as wanted (document_id, position)
    where not exists (
      select 1
      from asl_schema.document d
      where d.id = wanted.document_id and d.project_id = ${request.projectId}
    )
    order by wanted.position
    limit 20`;
  const [first] = unknown;
  if (first === undefined) return undefined;
  const documentIds = unknown.map((row) => row.documentId);
  return { outcome: 'unknown_documents', count: first.count, documentIds };
}
