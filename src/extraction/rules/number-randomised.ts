import { NUMBER, parseNumber } from './number-words.ts';
import { after, before, type Finding, matchesOf, type Paper, type PlacedMatch, type Rule } from './rule.ts';

/**
 * How many people were randomised, in all groups together.
 *
 * Sentences that give the number are recognised by their wording. A number for one group is not the answer and the sum of
 * groups does not stand in the paper, so neither is given; nor is the number that a protocol plans for.
 */
export const numberRandomised: Rule = {
  name: 'number_randomised',
  find(paper) {
    const votes = new Map<number, Vote>();
    for (const wording of WORDINGS) {
      for (const place of matchesOf(paper, wording.pattern)) {
        const printed = place.match.groups?.n ?? '';
        const value = parseNumber(printed);
        if (value === undefined || value < 4 || !isAboutThisTrial(paper, place)) continue;
        const score = wording.score + sectionBonus(place) - (/^\d/.test(printed) ? 0 : 0.1);
        const vote = votes.get(value);
        if (!vote) votes.set(value, { value, score, mentions: 1, place, printed });
        else {
          vote.mentions += 1;
          if (score > vote.score) Object.assign(vote, { score, place, printed });
        }
      }
    }
    return decide([...votes.values()]);
  },
};

type Vote = { value: number; score: number; mentions: number; place: PlacedMatch; printed: string };

/** Two different numbers as well supported as this are no answer. */
const TIE = 0.1;

function decide(votes: Vote[]): Finding | undefined {
  votes.sort((a, b) => weight(b) - weight(a));
  const [best, second] = votes;
  if (!best) return undefined;
  const lead = second ? weight(best) - weight(second) : Number.POSITIVE_INFINITY;
  // Of two equals the larger is the total more often than not, but not often enough if there are more than two.
  if (lead < TIE && votes.filter((vote) => weight(best) - weight(vote) < TIE).length > 2) return undefined;
  const chosen = lead < TIE && second && second.value > best.value ? second : best;
  const { page, start, end } = chosen.place;
  // A rule of this kind was right in 85 % of its answers on 420 abstracts. Estimated from there: more where the paper says
  // it twice, less where it says two things.
  const confidence = lead < 0.3 ? 0.6 : chosen.mentions > 1 ? 0.92 : 0.85;
  return { value: chosen.value, page, start, end, confidence, evidence: [chosen.printed] };
}

function weight(vote: Vote): number {
  return vote.score + Math.min(vote.mentions - 1, 3) * 0.15;
}

const PEOPLE =
  '(?:patients|participants|subjects|women|men|males|females|children|adults|individuals|people|persons|volunteers|infants|newborns|neonates|adolescents|students|boys|girls|mothers|couples|residents|smokers|veterans|older adults|outpatients|inpatients|cases|eyes|healthcare workers|nurses|physicians|users|respondents|employees|workers|drivers|pupils|caregivers|carers|parents|athletes|survivors|families|households|dyads|men and women|preschoolers|toddlers|teenagers|youths?|seniors|elders)';
/** Up to four words such as "eligible adult", and up to eight between the people and their verb. */
const ADJECTIVES =
  "(?:(?!(?:in|of|to|at|for|from|by|were|was|who|with|weeks?|wks?|years?|months?|days?|hours?|mg|centres|centers|sites|and)\\b)[a-z][a-z'’-]{0,20}\\s{1,2}){0,4}?";
const DETAILS =
  '(?:\\s{0,2}\\([^()]{1,60}\\))?(?:,?\\s{1,2}(?!(?:were|was|to|completed|declined|withdrew)\\b)[^\\s.;:]{1,25}){0,14}?';
const RANDOMISED =
  '(?:randomly\\s{1,2}(?:assigned|allocated|divided|split|distributed)|(?:assigned|allocated|divided)\\s{1,2}(?:randomly|at random)|randomi[sz]ed)';
const WERE =
  '(?:\\s{1,2}(?:were|was|had been|underwent|have been))(?:\\s{1,2}(?:then|subsequently|finally|eventually|successfully|recruited|enrolled|included|consented|eligible|screened|stratified|equally|block|also))?(?:,?\\s{1,2}(?:and|then|and then|and were|and subsequently|,)){0,2}\\s{1,2}';

const N = `(?<n>${NUMBER})`;

const WORDINGS: readonly { pattern: RegExp; score: number }[] = [
  // "789 pregnant smokers … were randomised", "A total of 120 patients were enrolled and randomly assigned"
  { pattern: new RegExp(`${N}\\s{1,2}${ADJECTIVES}${PEOPLE}\\b${DETAILS}${WERE}${RANDOMISED}`, 'gi'), score: 1 },
  // "we randomly assigned 240 patients", "randomised 240 women"
  {
    pattern: new RegExp(`\\b${RANDOMISED}\\s{1,2}(?:a total of\\s{1,2})?${N}\\s{1,2}${ADJECTIVES}${PEOPLE}\\b`, 'gi'),
    score: 1,
  },
  // "785 were randomised", "of whom 785 underwent randomisation"
  { pattern: new RegExp(`${N}${WERE}${RANDOMISED}`, 'gi'), score: 0.8 },
  {
    pattern: new RegExp(`${N}\\s{1,2}${ADJECTIVES}(?:${PEOPLE}\\s{1,2})?underwent\\s{1,2}randomi[sz]ation`, 'gi'),
    score: 1,
  },
  // "282 patients who … were recruited at 12 clinics and randomly allocated": the same, from further away
  {
    pattern: new RegExp(
      `(?<=[.:]\\s{1,3}|\\n|total of\\s|total,?\\s|,\\s)${N}\\s{1,2}${ADJECTIVES}${PEOPLE}\\b(?<between>[^.;:]{1,220}?)\\b(?:were|and|then|and were|being)\\s${RANDOMISED}`,
      'gi',
    ),
    score: 0.75,
  },
  // "with 62 patients randomised"
  { pattern: new RegExp(`\\b(?:with|and)\\s${N}\\s${ADJECTIVES}${PEOPLE}\\s${RANDOMISED}`, 'gi'), score: 0.8 },
  // "a randomised controlled trial in 500 chronically ill patients"
  {
    pattern: new RegExp(
      `\\brandomi[sz]ed[\\s,-]{1,2}(?:[a-z-]{1,20}[\\s,-]{1,2}){0,5}?(?:trial|study)\\s(?:was\\s(?:performed|conducted|carried out)\\s)?(?:of|in|with|among|involving)\\s${N}\\s${ADJECTIVES}${PEOPLE}\\b`,
      'gi',
    ),
    score: 0.6,
  },
  // "120 randomised patients"
  { pattern: new RegExp(`${N}\\s{1,2}(?:${ADJECTIVES})randomi[sz]ed\\s{1,2}${PEOPLE}\\b`, 'gi'), score: 0.8 },
  // Flow diagrams: "Randomised (n = 120)"
  {
    pattern: new RegExp(`\\brandomi[sz]ed\\s{0,2}(?:${PEOPLE}\\s{0,2})?[(:]\\s{0,2}n\\s{0,2}=\\s{0,2}${N}`, 'gi'),
    score: 0.9,
  },
  // "Patients (n = 120) were randomised"
  {
    pattern: new RegExp(
      `${PEOPLE}\\s{0,2}\\(\\s{0,2}n\\s{0,2}=\\s{0,2}${N}\\s{0,2}\\)${DETAILS}${WERE}${RANDOMISED}`,
      'gi',
    ),
    score: 0.9,
  },
];

/** Not one group's number, not a plan, and not another trial's. */
function isAboutThisTrial(paper: Paper, place: PlacedMatch): boolean {
  const left = before(paper, place, 100);
  const right = after(paper, place, 220);
  if (FUTURE.test(place.match[0]) || PLANNED.test(left)) return false;
  // The number stood for people who were left out or only looked at, and the randomised ones come later.
  const printed = place.match.groups?.n ?? '';
  const between = place.match[0]
    .slice(place.match[0].indexOf(printed) + printed.length)
    .replace(/\([^()]{0,80}\)/g, '');
  if (OTHER_PEOPLE.test(between)) return false;
  if (/\b(?:only|excluding|exclusion of|remaining|first|last|other|another|additional|further)\s{0,2}$/i.test(left))
    return false;
  // "23, 16 and 21 patients were randomised to A, B and C respectively"
  if (/\d{1,6},?\s(?:and|or)\s{0,2}$/i.test(left)) return false;
  if (
    /\bwho (?:were|had been|underwent)\s/i.test(between) &&
    /^[^.,;]{0,80}\b(?:did not|completed|had|were|was|dropped|withdrew)\b/i.test(right)
  )
    return false;
  if (
    /(?:versus|\bvs\.?|\bplan(?:ned)? to|\baim(?:ed)? to|\bneed(?:ed)? to|\bof the|=|±|to|aged?)\s{0,2}$/i.test(
      left.slice(-25),
    )
  )
    return false;
  if (/^\s{0,2}(?:years|months|weeks|days|hours|centres|centers|sites)/i.test(right)) return false;
  return !isOneGroup(right);
}

const FUTURE = /\b(?:will|would|should|to|shall|must|can|could|may) be\b/i;
const PLANNED =
  /\b(?:will|would|should|required?|requires|planned|needed|at least|desired|minimum of|target of|aim(?:ed)?|calculated)\b[^.;]{0,40}$/i;
const OTHER_PEOPLE = new RegExp(
  // "Of 402 drivers assessed, 186 were randomised": another number is what was randomised.
  `\\b(?:\\d{1,3}(?:,\\d{3})+|\\d{1,6})\\s(?:of\\s[a-z]{1,8}\\s)?(?:were|was|had been|have been|underwent)\\b|assessed for eligibility|\\b(?:excluded|declined|refused|screened|invited|approached|did not|not|dropped out|withdrew|were eligible)\\b|(?<![\\d.])\\d{2,6}\\s(?:[a-z-]{1,20}\\s){0,2}${PEOPLE}\\b`,
  'i',
);

/** "30 were randomised to A and 30 to B", "40 patients were randomised to the control group". */
function isOneGroup(right: string): boolean {
  const sentence = right.split(/[.;](?=\s)/)[0] ?? '';
  const goesToOne = /^\s{0,2}(?:in)?to\b/i.test(sentence);
  if (!goesToOne) return false;
  const offersChoice =
    /\b(?:or|either|one of|groups|arms|conditions|1\s?:\s?\d|ratio|two|three|four|both|each|treatments)\b|\(n\s{0,2}=.{1,120}\(n\s{0,2}=/i.test(
      sentence,
    );
  return COUNTS_ANOTHER.test(sentence) || !offersChoice;
}

const COUNTS_ANOTHER = new RegExp(
  `\\b(?:and|,|while|whereas)\\s{1,2}(?:the\\s)?(?:other\\s)?(?:${NUMBER})\\s{1,2}(?:[a-z]{1,20}\\s){0,4}?to\\b`,
  'i',
);

function sectionBonus(place: PlacedMatch): number {
  switch (place.section) {
    case 'front':
    case 'abstract':
      return 0.3;
    case 'results':
      return 0.15;
    case 'introduction':
    case 'discussion':
      return -0.6;
    case 'references':
      return -2;
    default:
      return 0;
  }
}
