/** What models do to a quote. Each takes the printed words and a source of chance between 0 and 1. */
export const ROUGHENINGS: Readonly<Record<string, (text: string, chance: () => number) => string>> = {
  'as it is': (text) => text,
  case: (text, chance) => (chance() < 0.5 ? text.toUpperCase() : text.charAt(0).toLowerCase() + text.slice(1)),
  'white space': (text, chance) => text.replace(/ /g, () => (chance() < 0.2 ? '\n' : chance() < 0.2 ? '  ' : ' ')),
  hyphenation: (text, chance) =>
    text.replace(/\b([a-z]{4,})([a-z]{4,})\b/g, (word, a, b) => (chance() < 0.4 ? `${a}-\n${b}` : word)),
  'hyphens dropped': (text) => text.replace(/(?<=[a-z])-(?=[a-z])/g, ' '),
  ligatures: (text) => text.replaceAll('ffi', 'ﬃ').replaceAll('fi', 'ﬁ').replaceAll('fl', 'ﬂ').replaceAll('ff', 'ﬀ'),
  'quotation marks': (text) => `“${text.replaceAll('"', '”').replaceAll("'", '’')}”`,
  dashes: (text) => text.replace(/[-–—‒−]/g, '—'),
  markdown: (text) => text.replace(/[*_^~\\]/g, ''),
  'citations dropped': (text) => text.replace(/\s*\[[\d\s,–-]+\](?:\([^)]*\))?/g, ''),
  'citations added': (text) => text.replace(/(?<=[a-z]{3})(?=[.,] )|(?<=[a-z]{3})(?=\.$)/, ' [12, 14–16]'),
  ellipsis: (text) => {
    const words = text.split(' ');
    if (words.length < 12) return text;
    const third = Math.floor(words.length / 3);
    return `${words.slice(0, third).join(' ')} … ${words.slice(-third).join(' ')}`;
  },
  'ellipsis at the ends': (text) => `...${text}[…]`,
  typos: (text, chance) => {
    const letters = [...text];
    const slips = Math.max(1, Math.floor(text.length / 40));
    for (let slip = 0; slip < slips; slip += 1) {
      const at = Math.floor(chance() * letters.length);
      if (!/[a-z]/.test(letters[at] ?? '')) continue;
      const kind = chance();
      letters[at] = kind < 0.4 ? 'e' : kind < 0.7 ? '' : `${letters[at]}${letters[at]}`;
    }
    return letters.join('');
  },
  'another spelling': (text) =>
    text
      .replace(/is(ed|ation|ing)\b/g, 'iz$1')
      .replace(/our\b/g, 'or')
      .replace(/ae/g, 'e'),
};

/** The same numbers on every machine (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
