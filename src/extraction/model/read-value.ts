import type { TemplateField } from '../../templates/template.ts';
import { castValue } from '../cast-value.ts';

/**
 * A value as a model writes it, in the type of its field: what `castValue` takes, and beyond it
 *
 * - a number in a text with its unit or a word ("500 mg", "about 60", "52.5 %"), where it is the only one
 * - several texts for one text
 *
 * Undefined where it is not of the type.
 */
export function readValue(raw: unknown, field: TemplateField): string | number | boolean | string[] | undefined {
  const value = castValue(raw, field);
  if (value !== undefined) return value;
  if (field.type === 'text' && Array.isArray(raw) && raw.every((part) => typeof part === 'string')) {
    return castValue(raw.join('; '), field);
  }
  if ((field.type === 'number' || field.type === 'integer') && typeof raw === 'string' && raw.length <= 100) {
    const numbers = raw.match(/(?<![\p{L}\d])[-+−]?\d+(?:[,\s]\d{3})*(?:[.·]\d+)?/gu) ?? [];
    return numbers.length === 1 ? castValue(numbers[0], field) : undefined;
  }
  return undefined;
}
