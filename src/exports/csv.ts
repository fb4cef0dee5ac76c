import { type Options, stringify } from 'csv-stringify/sync';
import type { FieldValue } from '../extraction/engine.ts';
import type { TaskResult } from '../tasks/task.ts';
import type { TemplateField } from '../templates/template.ts';

/**
 * What each row begins with; the template's fields follow. `ungrounded` names the fields of the row whose values the paper
 * does not bear out: a table must not hide that behind its cells.
 */
const FIXED = ['filename', 'documentId', 'resultId', 'status', 'attempts', 'errorCode', 'errorMessage', 'ungrounded'];

const OPTIONS: Options = {
  record_delimiter: '\r\n',
  // Also a line feed by itself; off by default as soon as the rows end otherwise.
  quote_record_delimiter: true,
  // A spreadsheet runs what begins like a formula, and a paper's words are not to be trusted. Numbers stay numbers.
  escape_formulas: true,
  cast: { boolean: String },
};

type Cell = string | number | boolean | null;

/**
 * The header of the table: a column each for the fields of the template, in its order, under their keys. A key that is the
 * name of a fixed column too is written `data.key`, which is no key of any field, as keys have no dots.
 */
export function csvHeader(fields: readonly TemplateField[]): string {
  const keys = fields.map(({ key }) => (FIXED.includes(key) ? `data.${key}` : key));
  return stringify([[...FIXED, ...keys]], OPTIONS);
}

/**
 * Results as rows of that table (RFC 4180). A list is one cell, its entries joined by "; "; a field without a value is an
 * empty one. Text that a spreadsheet would take for a formula has an apostrophe before it.
 */
export function toCsv(results: readonly TaskResult[], fields: readonly TemplateField[]): string {
  return stringify(
    results.map((result) => toRow(result, fields)),
    OPTIONS,
  );
}

function toRow(result: TaskResult, fields: readonly TemplateField[]): Cell[] {
  const { filename, documentId, resultId, status, attempts, error } = result;
  const data = (result.data ?? {}) as Partial<Record<string, FieldValue>>;
  const values = fields.map(({ key }) => toCell(data[key]?.value ?? null));
  const ungrounded = fields.filter(({ key }) => data[key]?.status === 'ungrounded').map(({ key }) => key);
  const fault = [error?.code ?? null, error?.message ?? null];
  return [filename, documentId, resultId, status, attempts, ...fault, ungrounded.join('; ') || null, ...values];
}

function toCell(value: FieldValue['value']): Cell {
  return Array.isArray(value) ? value.join('; ') : value;
}
