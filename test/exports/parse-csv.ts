import assert from 'node:assert/strict';

/** Reads CSV as RFC 4180 defines it, and nothing more lenient: written for tests, independently of the writer. */
export function parseCsv(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let at = 0;
  while (at < text.length) {
    let cell = '';
    if (text[at] === '"') {
      for (at += 1; ; at += 1) {
        assert.ok(at < text.length, 'a quoted cell is closed');
        if (text[at] !== '"') cell += text[at];
        else if (text[at + 1] === '"') cell += text[++at];
        else break;
      }
      at += 1;
    } else {
      const end = at + text.slice(at).search(/[,\r\n"]/);
      cell = text.slice(at, end);
      at = end;
    }
    row.push(cell);
    if (text[at] === ',') {
      at += 1;
      continue;
    }
    assert.equal(text.slice(at, at + 2), '\r\n', 'a row ends with CRLF');
    at += 2;
    rows.push(row);
    row = [];
  }
  assert.deepEqual(row, [], 'the last row is ended too');
  return rows;
}
