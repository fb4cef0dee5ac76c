import { v7 as uuidv7 } from 'uuid';
import type { Sql } from '../db.ts';
import type { Template, TemplateField } from './template.ts';

const templateColumns = (sql: Sql) => sql`
  id as "templateId",
  name,
  version,
  description,
  fields,
  created_at as "createdAt"`;

/**
 * Adds the next version under a name. The version is read and taken in one statement; of two that race for the same one,
 * the unique constraint lets the second have nothing, and it asks again. Each round at least one of them gets through.
 */
export async function createTemplate(
  sql: Sql,
  template: { name: string; description: string | null; fields: readonly TemplateField[] },
): Promise<Template> {
  const { name, description } = template;
  const fields = sql.json(template.fields as never);
  for (;;) {
    const [created] = await sql<Template[]>`
      insert into asl_schema.template (id, name, version, description, fields)
      select
        ${uuidv7()}::uuid,
        ${name}::text,
        (select coalesce(max(version), 0) + 1 from asl_schema.template where name = ${name}::text),
        ${description}::text,
        ${fields}
      on conflict on constraint template_name_version_key do nothing
      returning ${templateColumns(sql)}`;
    if (created !== undefined) return created;
  }
}

/** Templates, newest first, by keyset: `after` is the last template id of the page before. */
export async function listTemplates(
  sql: Sql,
  options: { name?: string | undefined; after?: string | undefined; limit: number },
): Promise<Template[]> {
  const { name, after, limit } = options;
  return await sql<Template[]>`
    select ${templateColumns(sql)}
    from asl_schema.template
    where true
      ${name === undefined ? sql`` : sql`and name = ${name}`}
      ${after === undefined ? sql`` : sql`and id < ${after}::uuid`}
    order by id desc
    limit ${limit}`;
}

/** One template, or undefined. */
export async function getTemplate(sql: Sql, templateId: string): Promise<Template | undefined> {
  const [template] = await sql<Template[]>`
    select ${templateColumns(sql)}
    from asl_schema.template
    where id = ${templateId}::uuid`;
  return template;
}
