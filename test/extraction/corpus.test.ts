import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { fold } from '../../src/extraction/cast-value.ts';
import type { FieldValue } from '../../src/extraction/engine.ts';
import { extractFields } from '../../src/extraction/extract-fields.ts';
import { readDocument } from '../../src/extraction/read-document.ts';
import { NUMBER, parseNumber } from '../../src/extraction/rules/number-words.ts';
import { corpusFile, corpusFiles, goldRegistrations, skipWithoutCorpus } from '../support/corpus.ts';
import { FIELDS } from './support.ts';

type Paper = { file: string; pages: string[]; data: Record<string, FieldValue> };

/** Prints the figures of the README: `node --import tsx --test test/extraction/corpus.test.ts`. */
describe('over the corpus', skipWithoutCorpus, () => {
  const papers: Paper[] = [];

  before(async () => {
    for (const [folder, mediaType] of [
      ['text', 'text/plain'],
      ['markdown', 'text/markdown'],
      ['pdf', 'application/pdf'],
    ] as const) {
      for (const name of corpusFiles(folder)) {
        const document = await readDocument(corpusFile(`${folder}/${name}`), mediaType);
        papers.push({ file: name, pages: document.pages, data: extractFields(document, FIELDS) });
      }
    }
  });

  test('the registration number is right in 95 % of the trials whose text has it', (t) => {
    let [asked, right, wrong, beyond] = [0, 0, 0, 0];
    for (const { file, number, standsInText } of goldRegistrations()) {
      const value = papers.find((paper) => paper.file === file)?.data.registration_number?.value;
      if (standsInText) {
        asked += 1;
        if (value === number) right += 1;
        else if (value) wrong += 1;
      } else if (value) beyond += 1;
    }
    t.diagnostic(
      `registration number: ${right} of ${asked} right, ${wrong} wrong, ${beyond} given where the label has none`,
    );
    assert.ok(asked > 50 && right / asked >= 0.95);
    assert.ok(wrong / asked <= 0.02);
  });

  test('how many fields are answered', (t) => {
    for (const { key } of FIELDS.slice(0, 6)) {
      const found = papers.filter(({ data }) => data[key]?.status === 'found').length;
      t.diagnostic(`${key}: answered in ${found} of ${papers.length}`);
    }
  });

  test('every value stands in its paper, at its place, and its quote is bounded', () => {
    for (const { file, pages, data } of papers) {
      for (const [key, field] of Object.entries(data)) {
        if (field.status !== 'found') {
          assert.deepEqual(
            [field.value, field.quote, field.page, field.start, field.end],
            [null, null, null, null, null],
          );
          continue;
        }
        const { value, quote, page, start, end, confidence, evidence = [] } = field;
        const where = `${file} ${key} ${value}`;
        assert.equal(pages[(page ?? 0) - 1]?.slice(start ?? 0, end ?? 0), quote, where);
        assert.ok(quote && quote.length <= 500, where);
        assert.ok(confidence && confidence > 0 && confidence <= 1, where);
        for (const piece of evidence) assert.equal(pages[piece.page - 1]?.slice(piece.start, piece.end), piece.text);
        assert.ok(stands(value, [quote, ...evidence.map(({ text }) => text)]), `${where} in ${quote}`);
      }
    }
  });

  test('every passage is an exact piece of its page, and there are at most three', () => {
    for (const { file, pages, data } of papers) {
      for (const { passages = [] } of Object.values(data)) {
        assert.ok(passages.length <= 3);
        for (const { page, start, end, text } of passages) {
          assert.equal(pages[page - 1]?.slice(start, end), text, file);
          assert.ok(text.length > 0 && text.length <= 600);
        }
      }
    }
  });

  test('the data of a paper is JSON and small', () => {
    for (const { data, file } of papers) {
      const json = JSON.stringify(data);
      assert.deepEqual(JSON.parse(json), data);
      assert.ok(json.isWellFormed() && !json.includes('\\u0000') && json.length < 40_000, file);
    }
  });
});

/** Checked another way than the engine does: by the letters and digits alone. */
function stands(value: FieldValue['value'], quotes: string[]): boolean {
  if (Array.isArray(value)) {
    return value.every((entry) =>
      quotes.some((quote) => entry.split('-').every((word) => fold(quote).includes(fold(word)))),
    );
  }
  const text = quotes[0] ?? '';
  if (typeof value === 'boolean')
    return /random|RCT|observational|retrospective|single-arm|cross-sectional/i.test(text);
  if (typeof value === 'number') {
    return [...text.matchAll(new RegExp(NUMBER, 'gi'))].some(([printed]) => parseNumber(printed) === value);
  }
  const letters = (string: string) => string.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');
  return (
    letters(text).includes(letters(String(value))) ||
    (letters(text).match(/\d{6,}/g) ?? []).some((run) => letters(String(value)).endsWith(run))
  );
}
