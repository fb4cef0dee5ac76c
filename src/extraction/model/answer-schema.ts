import type { FieldType, TemplateField } from '../../templates/template.ts';

export type JsonSchema = { [key: string]: unknown };

/** Whether the paper says it. That it does not is an answer too. */
export const ANSWER_STATUSES = ['found', 'not_reported'] as const;

/**
 * The JSON schema of an answer, by the rules of OpenAI's strict mode: an object of which every property is required and no
 * other allowed, at both levels; what may be absent is null; an enum that may be null has null among its values. Only
 * keywords that every implementation knows.
 *
 * The quote stands before the value: models write in this order, and look first.
 */
export function answerSchema(fields: readonly TemplateField[]): JsonSchema {
  return strictObject(
    fields.map((field) => [
      field.key,
      strictObject([
        ['quote', { type: ['string', 'null'] }],
        ['value', valueSchema(field)],
        ['status', { type: 'string', enum: ANSWER_STATUSES }],
      ]),
    ]),
  );
}

const VALUE_TYPES: Record<FieldType, string> = {
  text: 'string',
  number: 'number',
  integer: 'integer',
  boolean: 'boolean',
  date: 'string',
  enum: 'string',
  list: 'array',
};

function valueSchema(field: TemplateField): JsonSchema {
  const type = [VALUE_TYPES[field.type], 'null'];
  if (field.type === 'list') return { type, items: { type: 'string' } };
  if (field.type === 'enum') return { type, enum: [...(field.enum ?? []), null] };
  return { type };
}

function strictObject(properties: readonly (readonly [string, JsonSchema])[]): JsonSchema {
  return {
    type: 'object',
    properties: Object.fromEntries(properties),
    required: properties.map(([key]) => key),
    additionalProperties: false,
  };
}
