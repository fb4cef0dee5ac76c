import type { TemplateField } from '../templates/template.ts';
import { castValue } from './cast-value.ts';
import { type DocumentText, quoteAround } from './document-text.ts';
import type { FieldValue, Place } from './engine.ts';
import { isGrounded } from './grounding.ts';
import { findPassages } from './passages.ts';
import { chooseRule } from './rules/choose-rule.ts';
import { findPattern } from './rules/field-pattern.ts';
import type { Finding, Paper } from './rules/rule.ts';
import { Outline } from './sections.ts';

/**
 * Fills the fields of a template from a paper's text, without a model.
 *
 * A field with a pattern is answered by its pattern, a field that a rule may answer by the rule; every other field gets no
 * value but the passages that may hold the answer. A value that does not stand in its quote never leaves this function.
 */
export function extractFields(text: DocumentText, fields: readonly TemplateField[]): Record<string, FieldValue> {
  const paper: Paper = { text, outline: new Outline(text) };
  const values = new Map<string, FieldValue>();
  const unanswered: TemplateField[] = [];
  for (const field of fields) {
    const rule = field.pattern ? undefined : chooseRule(field);
    if (field.pattern) values.set(field.key, toFieldValue(paper, field, 'pattern', findPattern(text, field)));
    else if (rule) values.set(field.key, toFieldValue(paper, field, `rule:${rule.name}`, rule.find(paper, field)));
    else unanswered.push(field);
  }
  const passages = unanswered.length > 0 ? findPassages(text, paper.outline, unanswered) : new Map();
  // Own properties only, in the template's order: a key may be called "__proto__".
  return Object.fromEntries(
    fields.map((field) => [
      field.key,
      values.get(field.key) ?? { ...empty('unanswered'), passages: passages.get(field.key) ?? [] },
    ]),
  );
}

function empty(status: 'not_reported' | 'unanswered', method: string | null = null): FieldValue {
  return { value: null, status, quote: null, page: null, start: null, end: null, method, confidence: null };
}

function toFieldValue(paper: Paper, field: TemplateField, method: string, finding: Finding | undefined): FieldValue {
  const nothing = empty('not_reported', method);
  if (!finding) return nothing;
  const alternatives = finding.alternatives ? { alternatives: finding.alternatives } : {};
  const value = castFinding(finding, field);
  if (value === undefined) return { ...nothing, ...alternatives };
  const found: FieldValue = {
    value,
    status: 'found',
    ...quoteOf(paper, finding),
    method,
    confidence: finding.confidence,
    ...alternatives,
  };
  if (!isGrounded(paper.text.pages, found, finding.evidence)) return nothing;
  return Array.isArray(value) ? withEvidence(paper, found, value, finding) : found;
}

/** Patterns have cast their values already; rules give one type, and a list may have to become one text or enum. */
function castFinding(finding: Finding, field: TemplateField): FieldValue['value'] | undefined {
  const { value } = finding;
  if (!Array.isArray(value) || field.type === 'list') return castFor(value, field);
  if (field.type === 'enum') {
    const allowed = value.map((entry) => castValue(entry, field)).filter((entry) => entry !== undefined);
    // The quote is the first entry's: another entry would not stand in it.
    return allowed.length === 1 && castValue(value[0], field) === allowed[0] ? allowed[0] : undefined;
  }
  return castFor(value[0], field);
}

function castFor(value: unknown, field: TemplateField): FieldValue['value'] | undefined {
  return field.type === 'date' || field.type === 'enum' ? (value as string) : castValue(value, field);
}

function quoteOf(paper: Paper, place: Place): { quote: string; page: number; start: number; end: number } {
  const page = paper.text.pages[place.page - 1] ?? '';
  const { start, end } = quoteAround(page, place.start, place.end);
  return { quote: page.slice(start, end), page: place.page, start, end };
}

/** Each entry of a list must stand in the quote or at a place of its own, which is then given. */
function withEvidence(paper: Paper, found: FieldValue, value: string[], finding: Finding): FieldValue {
  const kept: string[] = [];
  const evidence: NonNullable<FieldValue['evidence']> = [];
  value.forEach((entry, index) => {
    const place = finding.entries?.[index];
    if (isGrounded(paper.text.pages, found, place?.evidence ?? [entry])) {
      kept.push(entry);
    } else if (place) {
      const { quote, page, start, end } = quoteOf(paper, place);
      if (!isGrounded(paper.text.pages, { ...found, quote, page, start, end }, place.evidence)) return;
      kept.push(entry);
      evidence.push({ page, start, end, text: quote });
    }
  });
  if (kept.length === 0) return empty('not_reported', found.method);
  return { ...found, value: kept, ...(evidence.length > 0 ? { evidence } : {}) };
}
