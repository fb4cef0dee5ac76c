import type { DocumentText } from '../../src/extraction/document-text.ts';
import { extractFields } from '../../src/extraction/extract-fields.ts';
import type { Finding, Rule } from '../../src/extraction/rules/rule.ts';
import { Outline } from '../../src/extraction/sections.ts';
import type { TemplateField } from '../../src/templates/template.ts';

export function field(key: string, type: TemplateField['type'], more: Partial<TemplateField> = {}): TemplateField {
  return { key, label: key, type, ...more };
}

/** The fields of the built-in template: six that rules answer and six for passages. */
export const FIELDS: TemplateField[] = [
  field('title', 'text'),
  field('doi', 'text'),
  field('registration_number', 'text'),
  field('randomised', 'boolean'),
  field('number_randomised', 'integer'),
  field('blinding', 'list'),
  field('population', 'text', { description: 'Who took part: condition, age and setting' }),
  field('intervention', 'text', { description: 'What the intervention group received' }),
  field('comparator', 'text', { description: 'What the control group received' }),
  field('primary_outcome', 'text', { description: 'The primary outcome and how it was measured' }),
  field('follow_up', 'text', { description: 'How long participants were followed' }),
  field('funding', 'text', { description: 'Who paid for the trial' }),
];

export function textDocument(...pages: string[]): DocumentText {
  return { pages, format: 'text' };
}

/** What one rule finds in a hand-written text. */
export function find(rule: Rule, text: string | DocumentText, asked = field('x', 'text')): Finding | undefined {
  const document = typeof text === 'string' ? textDocument(text) : text;
  return rule.find({ text: document, outline: new Outline(document) }, asked);
}

export function extract(text: string | DocumentText, ...fields: TemplateField[]) {
  return extractFields(typeof text === 'string' ? textDocument(text) : text, fields);
}
