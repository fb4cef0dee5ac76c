/** Longer sentences are cut at a word: tables and lists have no full stops. */
const MAX_SENTENCE_LENGTH = 600;

/** Abbreviations whose full stop ends no sentence. */
const ABBREVIATION =
  /(?:^|[\s(])(?:e\.g|i\.e|et al|vs|v|fig|figs|no|dr|prof|approx|ca|cf|st|ref|refs|resp|ed|eds|vol|inc|ltd|[A-Z])\.$/i;

/** The sentences of a text as offsets. A line break ends a sentence, so a heading is one of its own. Linear. */
export function* sentencesOf(text: string): Generator<{ start: number; end: number }> {
  let start = 0;
  for (const match of text.matchAll(/[.!?][)\]"”’]?(?=\s{1,3}["“([]?[A-Z0-9])|\n/g)) {
    const isBreak = match[0] === '\n';
    const end = isBreak ? match.index : match.index + match[0].length;
    if (!isBreak && ABBREVIATION.test(text.slice(Math.max(start, end - 10), end))) continue;
    yield* pieces(text, start, end);
    start = isBreak ? end + 1 : end;
  }
  yield* pieces(text, start, text.length);
}

function* pieces(text: string, from: number, to: number): Generator<{ start: number; end: number }> {
  let start = from;
  while (start < to) {
    let end = Math.min(to, start + MAX_SENTENCE_LENGTH);
    if (end < to) {
      // Looked for in the piece alone: a search through the whole text would be paid for by every piece.
      const space = text.slice(start, end).lastIndexOf(' ');
      if (space > MAX_SENTENCE_LENGTH / 2) end = start + space;
      else if (/[\udc00-\udfff]/.test(text.charAt(end))) end -= 1;
    }
    const trimmed = trim(text, start, end);
    if (trimmed.end > trimmed.start) yield trimmed;
    start = end;
  }
}

function trim(text: string, from: number, to: number): { start: number; end: number } {
  const piece = text.slice(from, to);
  const start = from + (piece.length - piece.trimStart().length);
  return { start, end: Math.max(start, from + piece.trimEnd().length) };
}
