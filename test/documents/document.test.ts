import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cleanFilename, detectMediaType } from '../../src/documents/document.ts';

const names: [given: string, kept: string][] = [
  ['paper.pdf', 'paper.pdf'],
  ['Über „Wirkung“ 研究 🧪.pdf', 'Über „Wirkung“ 研究 🧪.pdf'],
  ['../../etc/passwd', 'passwd'],
  ['C:\\Users\\me\\paper.pdf', 'paper.pdf'],
  ['a\0b\u0007c\n.txt', 'abc.txt'],
  ['evil\u202efdp.exe', 'evilfdp.exe'],
  ['  spaces .pdf  ', 'spaces .pdf'],
  ['half \ud83d.txt', 'half \ufffd.txt'],
  ['', 'document'],
  ['.', 'document'],
  ['..', 'document'],
  ['folder/', 'document'],
  ['\0\n', 'document'],
  [`${'x'.repeat(300)}.pdf`, `${'x'.repeat(251)}.pdf`],
  ['x'.repeat(300), 'x'.repeat(255)],
  [`${'🧪'.repeat(200)}.pdf`, `${'🧪'.repeat(125)}.pdf`],
];
for (const [given, kept] of names) {
  test(`a file named ${JSON.stringify(given).slice(0, 40)} is kept under a name that can be shown`, () => {
    assert.equal(cleanFilename(given), kept);
  });
}

const kinds: [what: string, head: string, filename: string, mediaType: string][] = [
  ['a PDF under any name', '%PDF-1.7\n', 'paper', 'application/pdf'],
  ['a PDF with something before its header', `${'\n'.repeat(1019)}%PDF-`, 'a.txt', 'application/pdf'],
  ['a PDF header past the first 1024 bytes', `${'\n'.repeat(1020)}%PDF-`, 'a.txt', 'text/plain'],
  ['what calls itself a PDF and is none', 'hello', 'a.PDF', 'application/pdf'],
  ['an empty file', '', 'a.pdf', 'application/pdf'],
  ['Markdown', '# Title', 'a.md', 'text/markdown'],
  ['Markdown by its long name', '# Title', 'a.Markdown', 'text/markdown'],
  ['text', 'hello', 'a.txt', 'text/plain'],
  ['a kind that we do not read', 'PK\x03\x04', 'a.docx', 'text/plain'],
  ['a file without an extension', 'hello', 'README', 'text/plain'],
];
for (const [what, head, filename, mediaType] of kinds) {
  test(`${what} is taken for ${mediaType}`, () => {
    assert.equal(detectMediaType(Buffer.from(head, 'latin1'), filename), mediaType);
  });
}
