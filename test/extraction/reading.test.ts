import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { quoteAround } from '../../src/extraction/document-text.ts';
import { HyphenJoiner, linesOfPage, type PdfLine, pageFromLines } from '../../src/extraction/pdf-lines.ts';
import { readDocument } from '../../src/extraction/read-document.ts';
import { corpusFile, corpusFiles, skipWithoutCorpus } from '../support/corpus.ts';

const utf8 = (text: string) => new TextEncoder().encode(text);

describe('plain text and markdown', () => {
  const read = (bytes: Uint8Array) => readDocument(bytes, 'text/plain').then(({ pages }) => pages);

  test('form feeds divide pages', async () => assert.deepEqual(await read(utf8('one\ftwo\f')), ['one', 'two']));
  test('UTF-8 with a byte-order mark', async () => assert.deepEqual(await read(utf8('\ufeffa µ')), ['a µ']));
  test('UTF-16 with a byte-order mark, either way round', async () => {
    assert.deepEqual(await read(Uint8Array.of(0xff, 0xfe, 0x61, 0, 0xb5, 0)), ['aµ']);
    assert.deepEqual(await read(Uint8Array.of(0xfe, 0xff, 0, 0x61, 0, 0xb5)), ['aµ']);
  });
  test('invalid UTF-8 is read as Windows-1252', async () => {
    assert.deepEqual(await read(Uint8Array.of(0x61, 0x96, 0xe9)), ['a–é']);
  });
  test('NUL, lone surrogates, blanks of all kinds and line ends are made plain', async () => {
    assert.deepEqual(await read(utf8('a\u0000b\u00a0c\r\nd\u00ade and much more text')), [
      'a b c\nde and much more text',
    ]);
    assert.deepEqual(await read(Uint8Array.of(0xff, 0xfe, 0x61, 0, 0, 0xd8, 0x62, 0)), ['a\ufffdb']);
  });
  test('nothing, white space and binary data are errors with codes', async () => {
    await assert.rejects(read(new Uint8Array()), { code: 'document_empty', errorClass: 'permanent' });
    await assert.rejects(read(utf8(' \n\t ')), { code: 'document_empty', errorClass: 'permanent' });
    await assert.rejects(read(new Uint8Array(1000).map((_, i) => i % 7)), { code: 'text_undecodable' });
  });
});

describe('lines of a PDF', () => {
  const line = (text: string, y: number, size = 10): PdfLine => ({ text, size, x: 0, y });
  const page = (...lines: PdfLine[]) => pageFromLines(lines, new HyphenJoiner([lines])).text;

  test('lines of a paragraph are joined, and what is set differently stands apart', () => {
    assert.equal(
      page(line('A large title', 100, 18), line('one', 80), line('two', 68), line('three', 30)),
      'A large title\none two\nthree',
    );
  });
  test('a heading of the same size stands apart', () => {
    assert.equal(page(line('Methods', 80), line('We did', 68)), 'Methods\nWe did');
  });
  test('divided words are joined, compounds keep their hyphen, ranges stay whole', () => {
    assert.equal(page(line('the abnormali-', 80), line('ties of', 68)), 'the abnormalities of');
    assert.equal(page(line('a double-', 80), line('blind trial', 68)), 'a double-blind trial');
    assert.equal(
      page(line('co-trimoxazole or cotri-', 80), line('moxazole', 68), line('cotrimoxazole', 56)),
      'co-trimoxazole or cotrimoxazole cotrimoxazole',
    );
    assert.equal(page(line('at 10-', 80), line('24 weeks', 68)), 'at 10-24 weeks');
    assert.equal(page(line('short-', 80), line('and long-term', 68)), 'short- and long-term');
  });
  test('a raised note does not grow into the number before it', () => {
    const item = (str: string, size: number) => ({
      str,
      transform: [size, 0, 0, size, 0, 0],
      width: 1,
      height: size,
      hasEOL: false,
    });
    assert.equal(
      linesOfPage([item('there were 785', 10), item('12', 6), item(' women', 10)])[0]?.text,
      'there were 785 12 women',
    );
  });
});

describe('quotes', () => {
  test('a quote is the sentence around the evidence', () => {
    const text = 'First one. Then 62 patients were randomised. Last one.';
    const at = text.indexOf('62');
    const { start, end } = quoteAround(text, at, at + 2);
    assert.equal(text.slice(start, end), 'Then 62 patients were randomised.');
  });
  test('a quote is bounded, keeps its evidence and cuts no character in half', () => {
    const text = `${'😀'.repeat(500)}62${'😀'.repeat(500)}`;
    const { start, end } = quoteAround(text, 1000, 1002);
    const quote = text.slice(start, end);
    assert.ok(quote.length <= 300 && quote.includes('62') && quote.isWellFormed());
  });
});

describe('real PDFs', skipWithoutCorpus, () => {
  const broken: Record<string, string | undefined> = {
    'zero.pdf': 'document_empty',
    'not-a-pdf.pdf': 'pdf_invalid',
    'html.pdf': 'pdf_invalid',
    'truncated.pdf': 'pdf_invalid',
    'password.pdf': 'pdf_password',
    'scanned.pdf': 'needs_ocr',
  };
  for (const [name, code] of Object.entries(broken)) {
    test(`${name} is ${code}, for good`, async () => {
      const reading = readDocument(corpusFile(`broken/${name}`), 'application/pdf');
      await assert.rejects(reading, { name: 'ExtractionError', code, errorClass: 'permanent' });
    });
  }
  test('an owner password alone is no obstacle', async () => {
    assert.equal((await readDocument(corpusFile('broken/owner-password.pdf'), 'application/pdf')).pages.length, 4);
  });
  for (const name of corpusFiles('pdf')) {
    test(`${name} reads in the order of its columns`, async () => {
      const { pages } = await readDocument(corpusFile(`pdf/${name}`), 'application/pdf');
      const text = pages.join('\n');
      assert.ok(text.isWellFormed() && !text.includes('\u0000'));
      // Prose that was read across columns has no words divided at line ends left, but many halves of sentences.
      assert.ok((text.match(/\p{Ll}- \p{Ll}/gu)?.length ?? 0) < 20);
      assert.ok((text.match(/[a-z,] [a-z]/g)?.length ?? 0) > 1000);
    });
  }
  test('a sentence over several lines of a column is one sentence', async () => {
    const { pages } = await readDocument(corpusFile('pdf/smoking-pregnancy-trial.pdf'), 'application/pdf');
    assert.match(pages[0] ?? '', /low birth weight, congenital abnormalities, and neonatal or sudden infant death/);
  });
});
