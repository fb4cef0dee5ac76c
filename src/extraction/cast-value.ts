import type { TemplateField } from '../templates/template.ts';

/** Longer texts are no values: a field is one cell of a table. */
export const MAX_VALUE_LENGTH = 1000;
/** The most entries a list may have. */
export const MAX_LIST_LENGTH = 50;

/**
 * Turns a raw value, as it stands in a paper or as a model wrote it, into the type of its field.
 *
 * - text     white space collapsed; empty or longer than 1,000 characters: none
 * - number   "1,234.5", "1 234", "0·5" (the Lancet's decimal point), "−3" with a true minus
 * - integer  the same, whole
 * - boolean  true/false, yes/no
 * - date     ISO yyyy-mm-dd; a day and month that could be swapped ("03/04/2012") is no date
 * - enum     the allowed value that it equals without regard to case, white space and dashes
 * - list     an array, or a text split at semicolons and line ends
 *
 * Returns undefined where the raw value is not of the type: the caller then has no value.
 */
export function castValue(
  raw: unknown,
  field: Pick<TemplateField, 'type' | 'enum'>,
): string | number | boolean | string[] | undefined {
  switch (field.type) {
    case 'text':
      return castText(raw);
    case 'number':
      return castNumber(raw);
    case 'integer': {
      const number = castNumber(raw);
      return number !== undefined && Number.isSafeInteger(number) ? number : undefined;
    }
    case 'boolean':
      return castBoolean(raw);
    case 'date':
      return castDate(raw);
    case 'enum': {
      const text = castText(raw);
      return text === undefined ? undefined : field.enum?.find((allowed) => fold(allowed) === fold(text));
    }
    case 'list': {
      const entries = Array.isArray(raw) ? raw : typeof raw === 'string' ? raw.split(/[;\n]/) : [raw];
      const texts = entries.map(castText).filter((text) => text !== undefined);
      const unique = [...new Set(texts)].slice(0, MAX_LIST_LENGTH);
      return unique.length > 0 ? unique : undefined;
    }
  }
}

function castText(raw: unknown): string | undefined {
  if (typeof raw !== 'string' && typeof raw !== 'number' && typeof raw !== 'boolean') return undefined;
  const text = String(raw)
    .toWellFormed()
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced here
    .replace(/[\s\u0000-\u001f\u007f-\u009f]+/g, ' ')
    .trim();
  return text === '' || text.length > MAX_VALUE_LENGTH ? undefined : text;
}

function castNumber(raw: unknown): number | undefined {
  if (typeof raw === 'number') return Number.isFinite(raw) ? raw : undefined;
  if (typeof raw !== 'string' || raw.length > 60) return undefined;
  const text = raw
    .trim()
    .replace(/^[\u2010-\u2015\u2212](?=\s?\d)/, '-')
    .replace(/[·∙⋅•]/g, '.');
  // Commas and spaces count only where they part thousands, so that "1,5" or "3 4" is not misread.
  const match = /^([-+]?)\s?(\d{1,3}(?:,\d{3})+|\d{1,3}(?:\s\d{3})+|\d+)?(\.\d+)?$/.exec(text);
  if (!match || (match[2] === undefined && match[3] === undefined)) return undefined;
  const number = Number(`${match[1]}${match[2]?.replace(/[,\s]/g, '') ?? '0'}${match[3] ?? ''}`);
  return Number.isFinite(number) ? number : undefined;
}

function castBoolean(raw: unknown): boolean | undefined {
  if (typeof raw === 'boolean') return raw;
  if (typeof raw !== 'string') return undefined;
  const text = raw.trim().toLowerCase();
  if (text === 'true' || text === 'yes') return true;
  if (text === 'false' || text === 'no') return false;
  return undefined;
}

const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];

function castDate(raw: unknown): string | undefined {
  if (typeof raw !== 'string' || raw.length > 60) return undefined;
  const text = raw.trim().toLowerCase().replace(/[,.]/g, ' ').replace(/\s+/g, ' ');
  const iso = /^(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:t.*)?$/.exec(text);
  if (iso) return isoDate(iso[1], Number(iso[2]), iso[3]);
  const dayFirst = /^(\d{1,2})(?:st|nd|rd|th)? (?:of )?([a-z]{3,9}) (\d{4})$/.exec(text);
  if (dayFirst) return isoDate(dayFirst[3], monthOf(dayFirst[2]), dayFirst[1]);
  const monthFirst = /^([a-z]{3,9}) (\d{1,2})(?:st|nd|rd|th)? (\d{4})$/.exec(text);
  if (monthFirst) return isoDate(monthFirst[3], monthOf(monthFirst[1]), monthFirst[2]);
  const numeric = /^(\d{1,2})[/ -](\d{1,2})[/ -](\d{4})$/.exec(text);
  if (!numeric) return undefined;
  const [first, second] = [Number(numeric[1]), Number(numeric[2])];
  if (first > 12 || first === second) return isoDate(numeric[3], second, numeric[1]);
  return second > 12 ? isoDate(numeric[3], first, numeric[2]) : undefined;
}

function monthOf(name: string | undefined): number {
  return MONTHS.indexOf(name?.slice(0, 3) ?? '') + 1;
}

function isoDate(year: string | undefined, month: number, day: string | undefined): string | undefined {
  const text = `${year}-${String(month).padStart(2, '0')}-${day?.padStart(2, '0')}`;
  const date = new Date(`${text}T00:00:00Z`);
  // The 31st of February would silently become March.
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text) ? text : undefined;
}

/** One spelling for comparing: lower case without white space and dashes. */
export function fold(text: string): string {
  return text
    .normalize('NFKC')
    .toLowerCase()
    .replace(/[\s\u00ad\u2010-\u2015\u2212_-]+/g, '');
}
