import { type Finding, matchesOf, type Paper, type PlacedMatch, type Rule } from './rule.ts';

/**
 * The words by which the paper describes its blinding, each in its usual form ("double-blind", "open-label").
 *
 * Title and abstract are asked first, then the methods; what an introduction or a discussion says is about other trials
 * too often to count.
 */
export const blinding: Rule = {
  name: 'blinding',
  find(paper) {
    const mentions = mentionsOf(paper);
    const inAbstract = mentions.filter(({ place }) => place.section === 'front' || place.section === 'abstract');
    const inMethods = mentions.filter(({ place }) => place.section === 'methods');
    const chosen = [...inAbstract, ...inMethods];
    const first = chosen[0];
    if (!first) return undefined;
    const unique = FORMS.flatMap(([form]) => chosen.find((mention) => mention.form === form) ?? []);
    // The first mention is the most prominent one: its quote stands for the field.
    unique.sort((a, b) => Number(b.form === first.form) - Number(a.form === first.form));
    return {
      value: unique.map((mention) => mention.form),
      page: first.place.page,
      start: first.place.start,
      end: first.place.end,
      // Not measured against labels: the words stand there, but one could be about a part of the trial only.
      confidence: inAbstract.length > 0 ? 0.85 : 0.75,
      evidence: first.form.split('-'),
      entries: unique.map(({ form, place }) => ({
        evidence: form.split('-'),
        page: place.page,
        start: place.start,
        end: place.end,
      })),
    } satisfies Finding;
  },
};

const GAP = '[\\s\\u2010-\\u2015-]{0,2}';
const WHO = '(?:outcomes?|data|study|the|independent|all|trained)';

function compound(first: string, second: string): RegExp {
  return new RegExp(`\\b${first}s?${GAP}${second}`, 'gi');
}

/** "assessors were blinded", "blinded outcome assessment", "blinding of assessors" */
function sentenceAbout(who: string): RegExp {
  const were = '(?:were|was|are|is|will be|remained|being)\\s(?:also\\s|kept\\s|all\\s|both\\s)?';
  return new RegExp(
    `\\b${who}s?\\s(?:[a-z]{1,15}\\s){0,3}?${were}blind|\\bblind(?:ed|ing)?\\s(?:of\\s)?(?:${WHO}\\s){0,2}${who}`,
    'gi',
  );
}

/** Each form with the ways it is printed; the words of the form stand in whatever its patterns match. */
const FORMS: readonly (readonly [string, readonly RegExp[]])[] = [
  ['triple-blind', [compound('triple', 'blind')]],
  ['double-blind', [compound('double', 'blind')]],
  ['double-mask', [compound('double', 'mask')]],
  ['single-blind', [compound('single', 'blind')]],
  ['single-mask', [compound('single', 'mask')]],
  ['assessor-blind', [compound('assessor', 'blind'), sentenceAbout('assessor')]],
  ['observer-blind', [compound('observer', 'blind'), sentenceAbout('observer')]],
  ['evaluator-blind', [compound('evaluator', 'blind'), sentenceAbout('evaluator')]],
  ['investigator-blind', [compound('investigator', 'blind')]],
  ['rater-blind', [compound('rater', 'blind'), sentenceAbout('rater')]],
  ['patient-blind', [compound('patient', 'blind')]],
  ['participant-blind', [compound('participant', 'blind')]],
  ['open-label', [compound('open', 'label')]],
  ['unblinded', [/\bunblinded(?=[,\s]{1,2}(?:[a-z-]{1,20}[,\s]{1,2}){0,3}(?:trial|study|design|comparison)\b)/gi]],
  ['non-blinded', [compound('non', 'blinded')]],
];

type Mention = { form: string; place: PlacedMatch };

function mentionsOf(paper: Paper): Mention[] {
  const mentions: Mention[] = [];
  for (const [form, patterns] of FORMS) {
    // One mention a section is enough: the rest would only cost memory in a very long text.
    const seen = new Set<string>();
    for (const pattern of patterns) {
      for (const place of matchesOf(paper, pattern)) {
        if (seen.has(place.section)) continue;
        seen.add(place.section);
        mentions.push({ form, place });
      }
    }
  }
  return mentions.sort((a, b) => a.place.page - b.place.page || a.place.start - b.place.start);
}
