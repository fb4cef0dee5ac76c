import type { TemplateField } from '../../templates/template.ts';
import { fieldWords } from './field-words.ts';
import { REGISTRIES, type Registry } from './registries.ts';
import { after, before, type Finding, matchesOf, type Paper, type PlacedMatch, type Rule } from './rule.ts';

/**
 * The trial's own registration number, normalised as its register writes it.
 *
 * A paper may also name other trials: every mention is scored by the words around it and the section it stands in, the
 * number with the best mention wins, and a number that is only ever mentioned as somebody else's is no answer.
 */
export const registrationNumber: Rule = {
  name: 'registration_number',
  find(paper, field) {
    const candidates = [...candidatesOf(paper, registriesFor(field)).values()];
    candidates.sort((a, b) => total(b) - total(a));
    const [best, second] = candidates;
    if (!best || best.score < MIN_SCORE) return undefined;
    // A review lists many trials and owns none: without a word of registration there is nothing to choose by.
    if (candidates.length >= 4 && best.score < CLEAR_SCORE) return undefined;
    const { page, start, end } = best.place;
    return {
      value: best.value,
      page,
      start,
      end,
      // 85 of 86 papers with a known number in their text. Estimated less where two compete or no word supports one.
      confidence: best.score >= CLEAR_SCORE ? (second && total(best) - total(second) < 1.5 ? 0.85 : 0.98) : 0.8,
      evidence: best.evidence,
      ...(candidates.length > 1 ? { alternatives: candidates.slice(1, 11).map(asAlternative) } : {}),
    } satisfies Finding;
  },
};

type Candidate = { value: string; score: number; mentions: number; place: PlacedMatch; evidence: string[] };

const MIN_SCORE = 0;
const CLEAR_SCORE = 3;

const REGISTERED =
  /regist|clinical ?trials?\.gov|controlled[- ]trials|trial (?:number|id|identifier)|identifier|eudract number/i;
const OWN =
  /(?:this|the|our|present|current) (?:clinical |randomi[sz]ed |controlled |pilot |feasibility )*(?:trial|study|protocol|review)\b[^.]{0,80}$/i;
const OTHERS =
  /\b(?:another|other|ongoing|previous|previously|earlier|similar|parallel|promising|planned|parent|companion|recruiting|separate|sister|future|currently under(?:way)?|in progress)\b[^.]{0,80}$/i;

function candidatesOf(paper: Paper, registries: readonly Registry[]): Map<string, Candidate> {
  const found = new Map<string, Candidate>();
  for (const registry of registries) {
    for (const place of matchesOf(paper, registry.pattern)) {
      if (registry.cue && !registry.cue.test(before(paper, place, 120))) continue;
      const value = registry.normalise(place.match);
      if (!value) continue;
      const score = scoreOf(paper, place) + (registry.weight ?? 0);
      const known = found.get(value);
      if (known) known.mentions += 1;
      if (known && known.score >= score) continue;
      found.set(value, { value, score, mentions: known?.mentions ?? 1, place, evidence: evidenceFor(value) });
    }
  }
  return found;
}

/** Letters and digits of the proper number: nothing but its punctuation may differ from what the paper prints. */
function evidenceFor(value: string): string[] {
  return value.match(/[a-z]{1,10}|\d{1,20}/gi) ?? [value];
}

/** Repetition supports a number, but never against a word of registration. */
function total(candidate: Candidate): number {
  return candidate.score + Math.min(candidate.mentions - 1, 3) * 0.3;
}

function scoreOf(paper: Paper, place: PlacedMatch): number {
  const left = before(paper, place, 160);
  const right = after(paper, place, 80);
  let score = 0;
  if (REGISTERED.test(left) || /^[^.]{0,60}\bregist/i.test(right)) score += 3;
  if (OWN.test(left)) score += 1.5;
  if (OTHERS.test(left)) score -= 3.5;
  switch (place.section) {
    case 'registration':
      return score + 3;
    case 'front':
    case 'abstract':
      return score + 2;
    case 'methods':
      return score + 1;
    case 'introduction':
    case 'discussion':
      return score - 2;
    case 'references':
      return score - 6;
    default:
      return score;
  }
}

function asAlternative({ value, place }: Candidate): { value: string; page: number; start: number; end: number } {
  return { value, page: place.page, start: place.start, end: place.end };
}

/** A field that names a register wants that register's number and no other. */
function registriesFor(field: TemplateField): readonly Registry[] {
  const words = fieldWords(field.key);
  const named = REGISTRIES.filter(({ name }) => words.includes(name.toLowerCase()));
  if (words.includes('clinicaltrials') || (words.includes('gov') && words.includes('trials'))) {
    return REGISTRIES.filter(({ name }) => name === 'NCT');
  }
  return named.length > 0 ? named : REGISTRIES;
}
