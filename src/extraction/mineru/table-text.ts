/** The most columns that one cell is taken to span: a wrong number must not fill the memory. */
const MAX_SPAN = 100;

/**
 * An HTML table as lines of text, one a row, its cells divided by ` | `.
 *
 * A cell's words stand once, where the paper prints them; the other places that it spans stay empty, so that the columns
 * below one another belong together. Anything that is no table loses its tags only.
 */
export function tableText(html: string): string {
  const rows = html.split(/<tr\b[^<>]*>/i).slice(1);
  if (rows.length === 0) return plainText(html);
  /** For each column, how many of the rows to come a cell above reaches into. */
  const reaching: number[] = [];
  const lines: string[] = [];
  for (const row of rows) {
    const cells: string[] = [];
    const skipReached = (): void => {
      while ((reaching[cells.length] ?? 0) > 0) {
        reaching[cells.length] = (reaching[cells.length] ?? 0) - 1;
        cells.push('');
      }
    };
    for (const cell of row.split(/<t[dh](?=[\s>])/i).slice(1)) {
      const open = cell.indexOf('>');
      const attributes = cell.slice(0, open);
      const content = cell.slice(open + 1).split(/<\/(?:t[dhr]|table|tbody|thead)>/i, 1)[0] ?? '';
      skipReached();
      const rowspan = spanIn(attributes, 'rowspan');
      for (let column = spanIn(attributes, 'colspan'), first = true; column > 0; column -= 1, first = false) {
        reaching[cells.length] = rowspan - 1;
        cells.push(first ? plainText(content).replace(/\s+/g, ' ') : '');
      }
    }
    skipReached();
    const line = cells.join(' | ').trim();
    if (cells.some((text) => text !== '')) lines.push(line);
  }
  return lines.join('\n');
}

/** Markdown that holds HTML tables: they become lines of text, and pictures, which nobody here sees, go. */
export function markdownText(markdown: string): string {
  return markdown
    .split(/(?=<table\b)/i)
    .map((piece) => {
      const end = /^<table/i.test(piece) ? piece.search(/<\/table>/i) : -1;
      return end < 0 ? piece : `\n${tableText(piece.slice(0, end))}\n${piece.slice(end + '</table>'.length)}`;
    })
    .join('')
    .replace(/!\[[^[\]\n]*\]\([^()\n]*\)/g, '');
}

function spanIn(attributes: string, name: string): number {
  const span = Number(new RegExp(`\\b${name}\\s*=\\s*["']?(\\d{1,4})`, 'i').exec(attributes)?.[1] ?? 1);
  return Math.min(Math.max(span, 1), MAX_SPAN);
}

/** A `<` that opens no tag, as in "p<0.05", is left alone. */
function plainText(html: string): string {
  const text = html
    .replace(/<br\s*\/?>/gi, ' ')
    .replace(/<\/?[a-z][^<>]*>/gi, '')
    .replace(/&(#x?[0-9a-f]{1,6}|[a-z]{2,8});/gi, decodeEntity);
  return text.trim();
}

const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  apos: "'",
  deg: '°',
  ge: '≥',
  gt: '>',
  hellip: '…',
  le: '≤',
  lt: '<',
  mdash: '—',
  micro: 'µ',
  minus: '−',
  nbsp: ' ',
  ndash: '–',
  plusmn: '±',
  quot: '"',
  times: '×',
};

function decodeEntity(whole: string, name: string): string {
  if (!name.startsWith('#')) return ENTITIES[name] ?? whole;
  const code = /^#x/i.test(name) ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1));
  return Number.isInteger(code) && code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
}
