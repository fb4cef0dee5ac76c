import { before, type Finding, matchesOf, type Paper, type PlacedMatch, type Rule } from './rule.ts';

/**
 * Whether the paper reports a randomised trial, where it says so in so many words.
 *
 * A review of randomised trials is none itself, and silence is not "no": without a plain statement there is no answer.
 */
export const randomised: Rule = {
  name: 'randomised',
  find(paper) {
    if (isReview(paper)) return undefined;
    const yes = bestOf(paper, YES);
    const no = bestOf(paper, NO);
    const best = no && (!yes || no.score > yes.score) ? no : yes;
    if (!best || best.score < MIN_SCORE) return undefined;
    const { page, start, end, match } = best.place;
    return {
      value: best === yes,
      page,
      start,
      end,
      // Recall of such a rule on 4,470 trials was 91 %; a "no" and a mention outside of title and abstract are estimates.
      confidence: best === no ? 0.7 : best.score >= 3 ? 0.95 : 0.85,
      evidence: [match[0]],
    } satisfies Finding;
  },
};

const MIN_SCORE = 1;

const YES =
  /\brandomi[sz]ed[,\s-]{1,3}(?:[a-z-]{1,20}[,\s]{1,3}){0,5}?(?:trial|study|experiment|crossover|cross-over|design|comparison|evaluation)\b|\b(?:were|was|are|will be|been|be|we|and|then)\s{1,2}(?:[a-z]{1,15}\s{1,2}){0,2}?(?:randomi[sz]ed|randomly (?:assigned|allocated|divided))(?:\s{1,2}(?:in)?to\b)?|\b(?:patients|participants|subjects|children|women|men|clusters|schools|practices|individuals|adults)\s{1,2}(?:randomi[sz]ed|randomly (?:assigned|allocated))\b|\brandomi[sz]ation (?:sequence|list|schedule|was)\b|\bRCT\b/gi;
const NO =
  /\bnon[\s-]?randomi[sz]ed[,\s-]{1,3}(?:[a-z-]{1,20}[,\s]{1,3}){0,4}?(?:trial|study|design|comparison|intervention)\b|\b(?:was|were|is) not randomi[sz]ed\b|\bwithout randomi[sz]ation\b|\b(?:observational|retrospective|prospective cohort|single-arm|before-and-after|cross-sectional) (?:cohort )?(?:study|trial|design)\b/gi;

function bestOf(paper: Paper, pattern: RegExp): { place: PlacedMatch; score: number } | undefined {
  let best: { place: PlacedMatch; score: number } | undefined;
  for (const place of matchesOf(paper, pattern)) {
    const left = before(paper, place, 60);
    let score = sectionScore(place);
    if (/\bnon[\s-]{0,2}$|\bnot\s{1,2}$|\bquasi[\s-]{0,2}$/i.test(left)) continue;
    // What others did or what should be done says nothing about this paper.
    if (
      /\b(?:previous|other|recent|several|many|further|future|larger|another|earlier|few|no|need for|lack of|meta-analysis of|review of|two|three|four)\b[^.]{0,40}$/i.test(
        left,
      )
    )
      score -= 2;
    if (/\b(?:this|our|the present|the current|we (?:conducted|performed|did))\b[^.]{0,40}$/i.test(left)) score += 1;
    if (score > (best?.score ?? Number.NEGATIVE_INFINITY)) best = { place, score };
  }
  return best;
}

function sectionScore(place: PlacedMatch): number {
  switch (place.section) {
    case 'front':
    case 'abstract':
    case 'registration':
      return 3;
    case 'methods':
      return 2;
    case 'results':
      return 1;
    case 'references':
      return -5;
    default:
      return 0;
  }
}

/** Said in the title or near the beginning, before anything else could be meant. */
function isReview(paper: Paper): boolean {
  const first = paper.text.pages.find((page) => page.trim() !== '') ?? '';
  return /\b(?:systematic|scoping|umbrella|cochrane|narrative) review\b|\bmeta-?analysis of\b|: a meta-?analysis\b/i.test(
    first.slice(0, 3000),
  );
}
