import { RE2JS } from 're2js';
import { permanent } from '../../errors.ts';
import type { TemplateField } from '../../templates/template.ts';
import { castValue, MAX_LIST_LENGTH, MAX_VALUE_LENGTH } from '../cast-value.ts';
import type { DocumentText } from '../document-text.ts';
import type { Finding } from './rule.ts';

/** A program of this many steps takes about a second for a megabyte; the templates of reasonable people have under 500. */
const MAX_PROGRAM_SIZE = 10_000;

/**
 * Why a field's pattern cannot be used, or undefined if it can. For checking templates before they are stored.
 */
export function patternFault(pattern: string): string | undefined {
  try {
    const size = RE2JS.compile(pattern).programSize();
    return size > MAX_PROGRAM_SIZE ? 'the pattern is too large' : undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/**
 * Looks for a field's own pattern, page by page. The first match counts: its first group, or else all of it, cast to the
 * field's type. Lists collect every match.
 *
 * One search by RE2 takes time in proportion to the text, whatever the pattern is. Many searches for the next match may each
 * look through the whole rest of the text, so all of them together have a limit.
 *
 * @throws ExtractionError `pattern_invalid`, `pattern_too_slow`
 */
export function findPattern(document: DocumentText, field: TemplateField): Finding | undefined {
  const pattern = compile(field);
  const found: Raw[] = [];
  const deadline = performance.now() + MAX_SEARCH_MS;
  for (const [index, text] of document.pages.entries()) {
    const matcher = pattern.matcher(text);
    while (matcher.find()) {
      if (performance.now() > deadline) {
        const message = `field ${field.key}: its pattern takes longer than ${MAX_SEARCH_MS / 1000} s on this document`;
        throw permanent('pattern_too_slow', message);
      }
      const group = matcher.groupCount() > 0 && matcher.start(1) >= 0 ? 1 : 0;
      const [start, end] = [matcher.start(group), matcher.end(group)];
      if (end <= start) continue;
      const raw = { text: text.slice(start, Math.min(end, start + MAX_VALUE_LENGTH + 1)), page: index + 1, start, end };
      if (field.type !== 'list') return single(raw, field);
      if (raw.text.length > MAX_VALUE_LENGTH || found.some((known) => known.text === raw.text)) continue;
      found.push(raw);
      if (found.length === MAX_LIST_LENGTH) return list(found);
    }
  }
  return list(found);
}

/** Far more than an honest pattern needs for a long paper, and bearable for the papers that wait behind it. */
const MAX_SEARCH_MS = 5000;

function compile(field: TemplateField): RE2JS {
  let pattern: RE2JS;
  try {
    pattern = RE2JS.compile(field.pattern ?? '');
  } catch (error) {
    throw permanent('pattern_invalid', `field ${field.key}: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (pattern.programSize() > MAX_PROGRAM_SIZE) {
    throw permanent('pattern_invalid', `field ${field.key}: the pattern is too large`);
  }
  return pattern;
}

type Raw = { text: string; page: number; start: number; end: number };

/** The words are the paper's, but whether the pattern asks for the right ones only its author knows. */
const CONFIDENCE = 0.8;

function single(raw: Raw, field: TemplateField): Finding | undefined {
  const value = castValue(raw.text, field);
  if (value === undefined || raw.text.length > MAX_VALUE_LENGTH) return undefined;
  return { value, page: raw.page, start: raw.start, end: raw.end, confidence: CONFIDENCE, evidence: [raw.text] };
}

function list(found: Raw[]): Finding | undefined {
  const entries = found.flatMap((raw) => {
    const value = castValue(raw.text, { type: 'text' });
    return typeof value === 'string' ? [{ ...raw, value, evidence: [value] }] : [];
  });
  const [first] = entries;
  if (!first) return undefined;
  const { page, start, end, evidence } = first;
  return { value: entries.map(({ value }) => value), page, start, end, evidence, entries, confidence: CONFIDENCE };
}
