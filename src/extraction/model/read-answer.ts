import * as v from 'valibot';
import type { TemplateField } from '../../templates/template.ts';
import { fold } from '../cast-value.ts';
import { ANSWER_STATUSES } from './answer-schema.ts';
import type { Reading } from './model-client.ts';
import { parseObject } from './parse-object.ts';
import { readValue } from './read-value.ts';

/** The longest quote that is looked for, in UTF-16 units. */
export const MAX_QUOTE_LENGTH = 1000;

export type FieldAnswer =
  | { kind: 'found'; value: string | number | boolean | string[]; quote: string | null }
  | { kind: 'not_reported' };

/** The answers by field key. A field whose answer can't be used is missing. */
export type Answers = Map<string, FieldAnswer>;

const entry = v.object({
  value: v.optional(v.unknown(), null),
  // What is no text is no quote, and a value without a quote is marked as such: no reason to ask again.
  quote: v.fallback(v.nullable(v.string()), null),
  status: v.fallback(v.optional(v.picklist(ANSWER_STATUSES)), undefined),
});

/**
 * Reads a model's answer against the template, whatever the server promised of it. Each field stands for itself; keys that
 * the template does not have are dropped.
 *
 * No value where the content holds no JSON object or none of the fields.
 */
export function readAnswer(content: string, fields: readonly TemplateField[]): Reading<Answers> {
  const object = unwrap(parseObject(content), fields);
  if (object === undefined) return { faults: ['it holds no JSON object'] };
  const answers: Answers = new Map();
  const faults: string[] = [];
  let known = 0;
  for (const field of fields) {
    const name = JSON.stringify(field.key);
    if (!Object.hasOwn(object, field.key)) {
      faults.push(`the key ${name} is missing`);
      continue;
    }
    known += 1;
    const result = v.safeParse(fieldSchema(field), object[field.key]);
    if (result.success) answers.set(field.key, result.output);
    else faults.push(`${name}: ${result.issues[0].message}`);
  }
  return known === 0 ? { faults } : { value: answers, faults };
}

function fieldSchema(field: TemplateField) {
  return v.pipe(
    v.nullable(v.object(entry.entries, 'must be an object with quote, value and status')),
    v.rawTransform(({ dataset, addIssue, NEVER }): FieldAnswer => {
      const answer = dataset.value;
      if (answer === null || answer.status === 'not_reported' || saysNothing(answer.value, field)) {
        return { kind: 'not_reported' };
      }
      const value = readValue(answer.value, field);
      if (value === undefined) {
        addIssue({ message: `value must be ${EXPECTED[field.type]}` });
        return NEVER;
      }
      return { kind: 'found', value, quote: clipQuote(answer.quote) };
    }),
  );
}

const EXPECTED: Record<TemplateField['type'], string> = {
  text: 'a text of at most 1,000 characters',
  number: 'one number',
  integer: 'one whole number',
  boolean: 'true or false',
  date: 'a date as yyyy-mm-dd',
  enum: 'one of the allowed values, in their spelling',
  list: 'a list of texts',
};

/** Models write "not reported" where null is asked for. Where the template allows that very value it is one. */
function saysNothing(value: unknown, field: TemplateField): boolean {
  if (value === null || (Array.isArray(value) && value.every((part) => part === null || part === ''))) return true;
  if (typeof value !== 'string') return false;
  const text = value.trim();
  if (text === '') return true;
  if (field.enum?.some((allowed) => fold(allowed) === fold(text))) return false;
  return /^(?:(?:not|none) (?:reported|stated|available|applicable|mentioned|specified|given|provided)|n\/?a|null)\.?$/i.test(
    text,
  );
}

/** The beginning of a true quote is a true quote. */
function clipQuote(quote: string | null): string | null {
  const text = quote?.toWellFormed().replaceAll('\u0000', ' ').trim() ?? '';
  if (text.length <= MAX_QUOTE_LENGTH) return text === '' ? null : text;
  const cut = text.lastIndexOf(' ', MAX_QUOTE_LENGTH);
  return text.slice(0, cut > MAX_QUOTE_LENGTH / 2 ? cut : MAX_QUOTE_LENGTH).toWellFormed();
}

/** Models like to wrap: `{"fields": {…}}`. */
function unwrap(
  object: Record<string, unknown> | undefined,
  fields: readonly TemplateField[],
): Record<string, unknown> | undefined {
  if (object === undefined || fields.some(({ key }) => Object.hasOwn(object, key))) return object;
  const values = Object.values(object);
  const [only] = values;
  const isWrapped = values.length === 1 && typeof only === 'object' && only !== null && !Array.isArray(only);
  return isWrapped ? (only as Record<string, unknown>) : object;
}
