import type { Context } from 'hono';
import * as v from 'valibot';
import { type Fault, invalidRequest } from './problem.ts';

const CONTROL = /\p{Cc}/u;

/** Text that PostgreSQL can hold as text and as JSON: no NUL, no half of a surrogate pair. */
export function text(min: number, max: number) {
  return v.pipe(
    v.string('must be a text'),
    v.check((value) => !value.includes('\0'), 'must not hold a NUL character'),
    v.check((value) => value.isWellFormed(), 'must not hold half of a surrogate pair'),
    v.check((value) => value.length >= min, min === 1 ? 'must not be empty' : `must have at least ${min} characters`),
    v.check((value) => value.length <= max, `must have at most ${max} characters`),
  );
}

/** Text of one line, without control characters. */
export function line(min: number, max: number) {
  return v.pipe(
    text(min, max),
    v.check((value) => !CONTROL.test(value), 'must not hold control characters'),
  );
}

/** A UUID of any version and in any case, handed on in lower case. */
export const uuid = v.pipe(
  v.string('must be a UUID'),
  v.regex(/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i, 'must be a UUID'),
  v.toLowerCase(),
);

/** The caller's own word for a collection of documents. */
export const projectId = line(1, 200);

/** A missing or null value becomes undefined. */
export function optional<const T extends v.GenericSchema>(schema: T) {
  return v.pipe(
    v.nullish(schema),
    v.transform((value) => value ?? undefined),
  );
}

/** The query parameters of every list. A cursor is the `nextCursor` of the page before. */
export const page = {
  limit: v.optional(
    v.pipe(
      v.string(),
      v.regex(/^\d{1,9}$/, 'must be a whole number'),
      v.transform(Number),
      v.minValue(1, 'must be at least 1'),
      v.maxValue(500, 'must be at most 500'),
    ),
    '50',
  ),
  cursor: v.optional(v.pipe(v.string(), v.check(isUuid, 'is not a cursor of this list'), v.toLowerCase())),
};

function isUuid(value: string): boolean {
  return v.is(uuid, value);
}

/** An object that knows its fields: each unknown one is a fault. (valibot's own strict object stops at the first.) */
export function strict<const T extends v.ObjectEntries>(entries: T): v.StrictObjectSchema<T, undefined> {
  const schema = v.strictObject(entries);
  const run = schema['~run'].bind(schema);
  return Object.assign(schema, {
    '~run': ((dataset, config) => {
      const input = dataset.value as Record<string, unknown>;
      const result = run(dataset, config);
      const first = result.issues?.find((issue) => isUnknownKey(issue) && issue.path?.length === 1);
      const [item] = first?.path ?? [];
      if (first === undefined || item?.type !== 'object') return result;
      // A hundred say as much as a million.
      for (const key of Object.keys(input).slice(0, 100)) {
        if (Object.hasOwn(entries, key) || key === item.key) continue;
        result.issues?.push({ ...first, input: key, path: [{ ...item, key, value: input[key] }] });
      }
      return result;
    }) as typeof run,
  });
}

function isUnknownKey(issue: { type: string; expected: string | null }): boolean {
  return issue.type === 'strict_object' && issue.expected === 'never';
}

/** The value as the schema has it. @throws Problem 400 naming every fault with its path */
export function parse<const T extends v.GenericSchema>(schema: T, input: unknown): v.InferOutput<T> {
  const parsed = v.safeParse(schema, input);
  if (parsed.success) return parsed.output;
  throw invalidRequest(parsed.issues.map(toFault));
}

function toFault(issue: v.BaseIssue<unknown>): Fault {
  const path = (issue.path ?? []).reduce((head, { key }) => {
    if (typeof key === 'number') return `${head}[${key}]`;
    return head === '' ? String(key) : `${head}.${String(key)}`;
  }, '');
  return { path: path.slice(0, 300), message: messageOf(issue) };
}

function messageOf(issue: v.BaseIssue<unknown>): string {
  if (isUnknownKey(issue)) return 'is not known';
  return issue.input === undefined ? 'is required' : issue.message;
}

/** The query parameters of a request. @throws Problem 400 for one that is unknown, wrong, or given twice */
export function parseQuery<const T extends v.ObjectEntries>(
  c: Context,
  entries: T,
): v.InferOutput<v.StrictObjectSchema<T, undefined>> {
  const { searchParams } = new URL(c.req.url);
  const names = [...new Set(searchParams.keys())];
  const twice = names.filter((name) => searchParams.getAll(name).length > 1);
  if (twice.length > 0) throw invalidRequest(twice.map((path) => ({ path, message: 'is given more than once' })));
  return parse(strict(entries), Object.fromEntries(searchParams));
}

/** A path parameter that is an id. @throws Problem 400 */
export function parseId(c: Context, name: string): string {
  return parse(v.object({ [name]: uuid }), { [name]: c.req.param(name) })[name] as string;
}

/** A page of a list: `items` holds up to one more than the limit, which tells whether there is a next page. */
export function toPage<T>(items: readonly T[], limit: number, idOf: (item: T) => string) {
  const data = items.slice(0, limit);
  const last = data.at(-1);
  return { data, nextCursor: items.length > limit && last !== undefined ? idOf(last) : null };
}
