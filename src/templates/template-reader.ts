import type { Sql } from '../db.ts';
import type { Template } from './template.ts';
import { getTemplate } from './template-store.ts';

/** Reads a template, or undefined when there is none of this id. */
export type TemplateReader = (templateId: string) => Promise<Template | undefined>;

const KEPT = 100;

/**
 * Reads each template once: none is ever changed, and a task of 10,000 results asks 10,000 times for the same one. Keeps those
 * that were asked for last. What was not found, or could not be read, is asked for again.
 */
export function createTemplateReader(sql: Sql): TemplateReader {
  const kept = new Map<string, Promise<Template | undefined>>();
  return (templateId) => {
    const known = kept.get(templateId);
    kept.delete(templateId);
    const reading = known ?? getTemplate(sql, templateId);
    kept.set(templateId, reading);
    const [oldest] = kept.keys();
    if (kept.size > KEPT && oldest !== undefined) kept.delete(oldest);
    if (known === undefined) {
      const forget = (): void => {
        if (kept.get(templateId) === reading) kept.delete(templateId);
      };
      reading.then((template) => template ?? forget(), forget);
    }
    return reading;
  };
}
