import type { TemplateField } from '../../templates/template.ts';
import { fold } from '../cast-value.ts';
import type { FieldValue, Place } from '../engine.ts';
import type { QuotePlace } from './quote-index.ts';
import type { FieldAnswer } from './read-answer.ts';
import { entrySupport, type Support, supportOf } from './value-support.ts';

/** A value as a model's answer becomes it. */
export type ModelFieldValue = FieldValue;

/** An estimate of how far each kind of finding may be trusted. Ordered, not calibrated. */
const CONFIDENCE: Record<Support, number> = { verbatim: 0.95, inferred: 0.8, partial: 0.7, none: 0.3 };
const CONFIDENCE_WITHOUT_QUOTE = 0.1;
/** For a quote that was found with errors in it. */
const INEXACT = 0.9;

/**
 * Holds a model's answer for one field against the paper. The quote is looked for by us, and given as it stands in the
 * page's text; the model's word for where it is, or that it is, counts for nothing.
 *
 * What makes a value `found`, given that its quote stands:
 *
 * - number, integer, date: it stands in the quote, in figures or words
 * - text: at least half of its words and all of its numbers stand in the quote; all of them: more confidence
 * - list: more than half of each entry's words; an entry that does not may stand word for word elsewhere in the paper, and
 *   the place is then its `evidence`
 * - enum, boolean: they are drawn from the quote in words that no program can check, so the quote alone must stand
 *
 * @param locate where a quote stands
 */
export function groundAnswer(
  pages: readonly string[],
  locate: (quote: string) => QuotePlace | undefined,
  field: TemplateField,
  answer: FieldAnswer,
  method: string,
): ModelFieldValue {
  if (answer.kind === 'not_reported') return { ...NOTHING, status: 'not_reported', method };
  const { value, quote } = answer;
  const place = quote === null ? undefined : locate(quote);
  if (place === undefined) {
    return { ...NOTHING, value, status: 'ungrounded', quote, method, confidence: CONFIDENCE_WITHOUT_QUOTE };
  }
  const printed = textAt(pages, place);
  let support = supportOf(value, field.type, printed);
  let evidence: NonNullable<FieldValue['evidence']> = [];
  if (Array.isArray(value) && support === 'none') {
    const found = evidenceFor(pages, locate, value, printed);
    if (found !== undefined) [evidence, support] = [found, 'partial'];
  }
  const { page, start, end, isExact } = place;
  return {
    value,
    status: support === 'none' ? 'ungrounded' : 'found',
    quote: printed,
    page,
    start,
    end,
    method,
    confidence: round(CONFIDENCE[support] * (isExact ? 1 : INEXACT)),
    ...(evidence.length > 0 ? { evidence } : {}),
  };
}

const NOTHING = { value: null, quote: null, page: null, start: null, end: null, confidence: null };

/** A field that the model was asked for and gave no usable answer to. */
export function unanswered(method: string): ModelFieldValue {
  return { ...NOTHING, status: 'unanswered', method };
}

/** Where the entries outside of the quote stand, word for word; undefined if one stands nowhere. */
function evidenceFor(
  pages: readonly string[],
  locate: (quote: string) => QuotePlace | undefined,
  entries: readonly string[],
  quote: string,
): NonNullable<FieldValue['evidence']> | undefined {
  const evidence: NonNullable<FieldValue['evidence']> = [];
  for (const entry of entries) {
    if (entrySupport(entry, quote) !== 'none') continue;
    const place = locate(entry);
    if (place === undefined || !fold(textAt(pages, place)).includes(fold(entry))) return undefined;
    evidence.push({ page: place.page, start: place.start, end: place.end, text: textAt(pages, place) });
  }
  return evidence;
}

function textAt(pages: readonly string[], { page, start, end }: Place): string {
  return pages[page - 1]?.slice(start, end) ?? '';
}

function round(confidence: number): number {
  return Math.round(confidence * 100) / 100;
}
