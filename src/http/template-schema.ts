import * as v from 'valibot';
import { patternFault } from '../extraction/rules/field-pattern.ts';
import { FIELD_TYPES, type FieldType } from '../templates/template.ts';
import { line, optional, strict, text } from './schemas.ts';

/** Which of a field's settings mean something for its type; elsewhere they are refused, not ignored. */
const WITH_UNIT: readonly FieldType[] = ['number', 'integer'];
const WITH_PATTERN: readonly FieldType[] = ['text', 'number', 'integer', 'date', 'enum', 'list'];

/** Compiling a repetition costs time for each of its rounds, before its size can be judged. */
const MAX_REPEATS = 200;
const PATTERN_RULE = `must be a regular expression in RE2 syntax, with at most ${MAX_REPEATS} repetitions by numbers`;

export const templateName = line(1, 200);

const field = v.pipe(
  strict({
    key: v.pipe(
      v.string('must be a text'),
      v.regex(/^[A-Za-z][A-Za-z0-9_]{0,63}$/, 'must be a letter and up to 63 letters, digits and underscores'),
    ),
    label: line(1, 200),
    type: v.picklist(FIELD_TYPES, `must be one of ${FIELD_TYPES.join(', ')}`),
    description: optional(text(0, 2000)),
    unit: optional(line(1, 200)),
    enum: optional(
      v.pipe(
        v.array(v.unknown(), 'must be a list'),
        v.check((values) => values.length >= 1, 'must have at least one value'),
        v.check((values) => values.length <= 200, 'must have at most 200 values'),
        v.array(line(1, 200)),
        v.check((values) => new Set(values).size === values.length, 'must not have the same value twice'),
      ),
    ),
    required: optional(v.boolean('must be true or false')),
    pattern: optional(v.pipe(text(1, 500), v.check(isUsable, PATTERN_RULE))),
  }),
  at('enum', ({ type, enum: values }) => type !== 'enum' || values !== undefined, 'is required for the type enum'),
  at('enum', ({ type, enum: values }) => type === 'enum' || values === undefined, 'is for the type enum only'),
  at(
    'unit',
    ({ type, unit }) => unit === undefined || WITH_UNIT.includes(type),
    `is for the types ${WITH_UNIT.join(', ')} only`,
  ),
  at(
    'pattern',
    ({ type, pattern }) => pattern === undefined || WITH_PATTERN.includes(type),
    `is for the types ${WITH_PATTERN.join(', ')} only`,
  ),
);

/** What `POST /templates` takes. */
export const newTemplate = strict({
  name: templateName,
  description: optional(text(0, 2000)),
  fields: v.pipe(
    // The length first: a million fields are refused without a look at each.
    v.array(v.unknown(), 'must be a list'),
    v.check((fields) => fields.length >= 1, 'must have at least one field'),
    v.check((fields) => fields.length <= 200, 'must have at most 200 fields'),
    v.array(field),
    v.rawCheck(({ dataset, addIssue }) => {
      if (!dataset.typed) return;
      const seen = new Set<string>();
      dataset.value.forEach(({ key }, index) => {
        if (seen.has(key)) addIssue(issueAt(dataset.value, [index, 'key'], `is the key of an earlier field too`));
        seen.add(key);
      });
    }),
  ),
});

type Settings = {
  type: FieldType;
  enum?: string[] | undefined;
  unit?: string | undefined;
  pattern?: string | undefined;
};

/** A rule over a whole field, reported at the setting that breaks it. */
function at<T extends Settings>(key: keyof Settings, holds: (field: T) => boolean, message: string) {
  return v.rawCheck<T>(({ dataset, addIssue }) => {
    if (dataset.typed && !holds(dataset.value)) addIssue(issueAt(dataset.value, [key], message));
  });
}

/** valibot wants each step of a path with what was found there. */
function issueAt(input: unknown, keys: readonly (string | number)[], message: string) {
  let value = input;
  const path = keys.map((key) => {
    const parent = value as Record<string | number, unknown>;
    value = parent[key];
    return { type: 'unknown' as const, origin: 'value' as const, input: parent, key, value };
  });
  return { message, path: path as [v.UnknownPathItem, ...v.UnknownPathItem[]] };
}

function isUsable(pattern: string): boolean {
  const repeats = [...pattern.matchAll(/\{(\d+)(?:,(\d*))?\}/g)].map(([, least, most]) => Number(most || least));
  const modest = repeats.reduce((sum, count) => sum + count, 0) <= MAX_REPEATS;
  return modest && patternFault(pattern) === undefined;
}
