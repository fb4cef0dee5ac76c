/** The pieces of a quote around "…", "..." and "[...]", without the empty ones. */
export function splitAtEllipses(quote: string): string[] {
  return quote
    .split(/\s*[[(]?(?:…|\.{3,10}|(?:\. ){2,5}\.)[\])]?\s*/)
    .map((piece) => piece.trim())
    .filter((piece) => piece !== '');
}
