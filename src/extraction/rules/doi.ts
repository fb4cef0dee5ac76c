import { after, before, type Finding, matchesOf, type PlacedMatch, type Rule } from './rule.ts';

/**
 * The paper's own DOI. Publishers print it on the first page or in its margins; a DOI in the list of references, or on a
 * later page without the word "doi", belongs to another paper.
 */
export const doi: Rule = {
  name: 'doi',
  find(paper) {
    const found = new Map<string, { value: string; score: number; place: PlacedMatch; end: number }>();
    for (const place of matchesOf(paper, PATTERN)) {
      // Some publishers print it at the very end: "doi:10… Cite this article as: …".
      const stated = STATED.test(before(paper, place, 120)) || STATED.test(after(paper, place, 60));
      if (!stated && (place.page > 2 || place.start > 20_000)) continue;
      if ((place.section === 'references' && !stated) || CITED.test(before(paper, place, 200))) continue;
      const value = tidy(place.match[0]);
      if (!value) continue;
      const cue = CUE.test(before(paper, place, 30));
      const own = place.page === 1 && (place.section === 'front' || place.section === 'abstract' || place.start < 3000);
      if (!cue && !own) continue;
      const key = value.toLowerCase();
      const known = found.get(key);
      if (known) known.score += 1;
      else
        found.set(key, {
          value,
          score: (cue ? 1 : 0) + (own ? 1 : 0) + (stated ? 2 : 0),
          place,
          end: place.start + value.length,
        });
    }
    const [best, second] = [...found.values()].sort((a, b) => b.score - a.score);
    if (!best || (second && second.score === best.score && best.score < 2)) return undefined;
    return {
      value: best.value,
      page: best.place.page,
      start: best.place.start,
      end: best.end,
      // Such a rule found 9 in 25 PDFs, none wrong.
      confidence: second ? 0.85 : 0.95,
      evidence: [best.value],
    } satisfies Finding;
  },
};

const PATTERN = /(?<![\w.])10\.\d{4,9}\/[^\s"<>{}|\\^`]{2,120}/g;
const CUE = /doi(?:\.org)?[\s:/=)\].]{0,6}$/i;
const STATED = /\bcite this (?:article|paper) as\b/i;
/** Words of a reference or of a correction that names the paper it corrects. */
const CITED = /\b(?:erratum|correction|retraction|comment) (?:to|on|in|of)\b[^\n]{0,150}$|\bet al\.[^\n]{0,120}$/i;

/** Punctuation of the sentence around it, and the part for a figure or supplement, are not the DOI's. */
function tidy(text: string): string | undefined {
  let value = text.replace(/\.[sgt]\d{3}$/i, '');
  for (let last = ''; last !== value; ) {
    last = value;
    value = value.replace(/[.,;:'’”*]$/, '');
    if (/[)\]]$/.test(value) && !isBalanced(value)) value = value.slice(0, -1);
  }
  return /\/.*[\p{L}\d]/u.test(value) ? value : undefined;
}

function isBalanced(text: string): boolean {
  const count = (pattern: RegExp) => text.match(pattern)?.length ?? 0;
  return count(/\(/g) === count(/\)/g) && count(/\[/g) === count(/\]/g);
}
