/** Shorter texts are too like each other to be told apart with errors in them. */
export const MIN_SIMILAR_LENGTH = 24;
/** A piece that stands in more places than this tells none of them. */
const MAX_PLACES = 64;
const MAX_CANDIDATES = 8;

export type Span = { from: number; to: number; distance: number };

/**
 * The piece of a text that is most like a pattern, by Levenshtein's distance. Undefined where there is none with few enough
 * errors, or the pattern is shorter than 24 characters.
 *
 * Few enough is a tenth of the pattern's length less three, at least a twentieth. Short sentences get less than a tenth: "all
 * authors read and approved the final manuscript" is nearly the same in every paper, and must still not pass for another's.
 *
 * With at most e errors, one of e + 1 pieces of the pattern stands in the text unharmed: they are looked for, and vote for
 * where the pattern began. Only the best of these places are then aligned, so that a pattern costs little more than a few
 * searches for plain text.
 */
export function findSimilar(text: string, pattern: string, from = 0, to = text.length): Span | undefined {
  if (pattern.length < MIN_SIMILAR_LENGTH) return undefined;
  const maxDistance = Math.floor(Math.max(pattern.length / 20, pattern.length / 10 - 3));
  let best: Span | undefined;
  for (const begin of candidates(text, pattern, maxDistance, from, to)) {
    const windowFrom = Math.max(from, begin - 2 * maxDistance);
    const windowTo = Math.min(to, begin + pattern.length + 2 * maxDistance);
    const found = align(text, pattern, windowFrom, windowTo, best ? best.distance - 1 : maxDistance);
    if (found !== undefined) best = found;
    if (best?.distance === 0) break;
  }
  return best;
}

function candidates(text: string, pattern: string, maxDistance: number, from: number, to: number): number[] {
  const length = Math.floor(pattern.length / (maxDistance + 1));
  const votes = new Map<number, { begin: number; count: number }>();
  for (let piece = 0; piece <= maxDistance; piece += 1) {
    const offset = piece * length;
    const places = occurrences(text, pattern.slice(offset, offset + length), from, to, MAX_PLACES + 1);
    if (places.length > MAX_PLACES) continue;
    for (const place of places) {
      // Errors between the pieces shift where the pattern seems to begin.
      const bucket = Math.round((place - offset) / Math.max(8, maxDistance));
      const vote = votes.get(bucket) ?? { begin: place - offset, count: 0 };
      vote.count += 1;
      votes.set(bucket, vote);
    }
  }
  return [...votes.values()]
    .sort((a, b) => b.count - a.count || a.begin - b.begin)
    .slice(0, MAX_CANDIDATES)
    .map(({ begin }) => begin);
}

/** Where a plain text stands, at most so often; overlapping places count. */
export function occurrences(text: string, searched: string, from: number, to: number, most: number): number[] {
  const places: number[] = [];
  for (
    let at = text.indexOf(searched, from);
    at >= 0 && at + searched.length <= to;
    at = text.indexOf(searched, at + 1)
  ) {
    places.push(at);
    if (places.length === most) break;
  }
  return places;
}

/**
 * The best alignment of the whole pattern with any part of the window (Sellers 1980), with the start carried along. Cells
 * beyond the bound are not looked at (Ukkonen 1985).
 */
function align(text: string, pattern: string, from: number, to: number, bound: number): Span | undefined {
  if (bound < 0) return undefined;
  const rows = pattern.length;
  const distance = new Int32Array(rows + 1);
  const start = new Int32Array(rows + 1);
  for (let row = 0; row <= rows; row += 1) distance[row] = row;
  start.fill(from);
  let last = Math.min(rows, bound);
  let best: Span | undefined;
  for (let at = from; at < to; at += 1) {
    const code = text.charCodeAt(at);
    // Left above: row 0, where a match may begin anywhere for nothing.
    let diagonal = 0;
    let diagonalStart = at;
    start[0] = at + 1;
    const deepest = Math.min(rows, last + 1);
    let reached = 0;
    for (let row = 1; row <= deepest; row += 1) {
      const left = row <= last ? (distance[row] ?? 0) : bound + 1;
      const leftStart = start[row] ?? from;
      let value = diagonal + (pattern.charCodeAt(row - 1) === code ? 0 : 1);
      let valueStart = diagonalStart;
      const above = (distance[row - 1] ?? 0) + 1;
      if (above < value) {
        value = above;
        valueStart = start[row - 1] ?? from;
      }
      if (left + 1 < value) {
        value = left + 1;
        valueStart = leftStart;
      }
      diagonal = left;
      diagonalStart = leftStart;
      distance[row] = value;
      start[row] = valueStart;
      if (value <= bound) reached = row;
    }
    last = reached;
    if (last === rows) {
      const found = distance[rows] ?? bound + 1;
      if (best === undefined || found < best.distance)
        best = { from: start[rows] ?? from, to: at + 1, distance: found };
    }
  }
  return best;
}
