import { Hono } from 'hono';
import { createTemplate, getTemplate, listTemplates } from '../templates/template-store.ts';
import type { AppDependencies } from './app.ts';
import { readJson } from './body.ts';
import { notFound } from './problem.ts';
import { optional, page, parse, parseId, parseQuery, toPage } from './schemas.ts';
import { newTemplate, templateName } from './template-schema.ts';

/** Templates over HTTP. There is no change and no delete: a change is a new version under the same name. */
export function templates({ sql }: AppDependencies): Hono {
  const app = new Hono();

  app.post('/', async (c) => {
    parseQuery(c, {});
    const { name, description, fields } = parse(newTemplate, await readJson(c));
    const template = await createTemplate(sql, { name, description: description ?? null, fields });
    return c.json(template, 201, { Location: `/templates/${template.templateId}` });
  });

  app.get('/', async (c) => {
    const query = parseQuery(c, { name: optional(templateName), ...page });
    const { limit, cursor } = query;
    const found = await listTemplates(sql, { name: query.name, after: cursor, limit: limit + 1 });
    return c.json(toPage(found, limit, (template) => template.templateId));
  });

  app.get('/:templateId', async (c) => {
    parseQuery(c, {});
    const templateId = parseId(c, 'templateId');
    const template = await getTemplate(sql, templateId);
    if (template === undefined) throw notFound('template', templateId);
    return c.json(template);
  });

  return app;
}
