import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { locateQuote } from '../../../src/extraction/model/locate-quote.ts';
import { readDocument } from '../../../src/extraction/read-document.ts';
import { sentencesOf } from '../../../src/extraction/sentences.ts';
import { corpusFile, corpusFiles, skipWithoutCorpus } from '../../support/corpus.ts';
import { ROUGHENINGS, seeded } from '../../support/model-roughen.ts';

type Sentence = { page: number; start: number; end: number; text: string };
type Paper = { file: string; pages: string[]; letters: string; sentences: Sentence[] };

/** Prints the figures: `node --import tsx --test test/extraction/model/locate-corpus.test.ts`. */
describe('quotes of real papers', skipWithoutCorpus, () => {
  const papers: Paper[] = [];

  before(async () => {
    for (const [folder, mediaType, most] of [
      ['markdown', 'text/markdown', 100],
      ['text', 'text/plain', 20],
      ['pdf', 'application/pdf', 1],
    ] as const) {
      for (const file of corpusFiles(folder).slice(-most)) {
        const { pages } = await readDocument(corpusFile(`${folder}/${file}`), mediaType);
        papers.push({ file, pages, letters: lettersOf(pages.join('')), sentences: sentencesIn(pages) });
      }
    }
  });

  test('are found at their place in 98 % of cases, however a model has copied them', (t) => {
    const chance = seeded(1);
    const tally = new Map<string, { asked: number; right: number; elsewhere: number }>();
    const missed: string[] = [];
    for (const { file, pages, sentences } of papers) {
      for (let count = 0; count < 30; count += 1) {
        const sentence = sentences[Math.floor(chance() * sentences.length)];
        const names = Object.keys(ROUGHENINGS);
        const name = names[count % names.length] ?? '';
        // Every second quote has a second kind of wear.
        const second = count < names.length ? 'as it is' : (names[Math.floor(chance() * names.length)] ?? '');
        if (sentence === undefined) continue;
        const rough = ROUGHENINGS[second]?.(ROUGHENINGS[name]?.(sentence.text, chance) ?? '', chance) ?? '';
        const figures = tally.get(name) ?? { asked: 0, right: 0, elsewhere: 0 };
        const place = locateQuote(pages, rough);
        figures.asked += 1;
        if (place !== undefined && isSame(sentence, place, pages)) figures.right += 1;
        else {
          if (place !== undefined) figures.elsewhere += 1;
          missed.push(`${file} [${name}, ${second}] ${place ? 'elsewhere' : 'nowhere'}: ${rough.slice(0, 200)}`);
        }
        tally.set(name, figures);
      }
    }
    let [asked, right, elsewhere] = [0, 0, 0];
    for (const [name, figures] of tally) {
      t.diagnostic(`${name}: ${figures.right} of ${figures.asked}`);
      asked += figures.asked;
      right += figures.right;
      elsewhere += figures.elsewhere;
    }
    if (process.env.SHOW_MISSED) for (const line of missed) t.diagnostic(line);
    t.diagnostic(`own quotes: ${right} of ${asked} at their place, ${elsewhere} elsewhere`);
    assert.ok(asked > 1000 && right / asked >= 0.98);
    assert.ok(elsewhere / asked <= 0.005);
  });

  test('of another paper are found in none', (t) => {
    const chance = seeded(2);
    let asked = 0;
    const wrong: string[] = [];
    for (const { file, pages, letters } of papers) {
      for (let count = 0; count < 60; count += 1) {
        const other = papers[Math.floor(chance() * papers.length)];
        const sentence = other?.sentences[Math.floor(chance() * other.sentences.length)];
        // The same sentence may stand in both, and then it is no foreign one.
        if (other === undefined || sentence === undefined || letters.includes(lettersOf(sentence.text))) continue;
        const names = Object.keys(ROUGHENINGS);
        const rough = ROUGHENINGS[names[count % names.length] ?? '']?.(sentence.text, chance) ?? '';
        const place = locateQuote(pages, rough);
        asked += 1;
        if (place !== undefined) {
          wrong.push(`${file}: ${rough}\n  => ${pages[place.page - 1]?.slice(place.start, place.end)}`);
        }
      }
    }
    t.diagnostic(`foreign quotes: ${wrong.length} of ${asked} found`);
    assert.deepEqual(wrong, []);
    assert.ok(asked > 2000);
  });

  test('two hundred of them in a paper of 200 kB take under two seconds', (t) => {
    const pages: string[] = [];
    for (const paper of papers) if (pages.join('').length < 200_000) pages.push(...paper.pages);
    const chance = seeded(3);
    const sentences = sentencesIn(pages);
    const quotes = Array.from({ length: 200 }, (_, index) => {
      const text = sentences[Math.floor(chance() * sentences.length)]?.text ?? '';
      // A third with errors, a third that stands nowhere: the dearest.
      return index % 3 === 0
        ? text
        : index % 3 === 1
          ? (ROUGHENINGS.typos?.(text, chance) ?? '')
          : [...text].reverse().join('');
    });
    const started = performance.now();
    for (const quote of quotes) locateQuote(pages, quote);
    const elapsedMs = Math.round(performance.now() - started);
    t.diagnostic(`200 quotes in ${Math.round(pages.join('').length / 1000)} kB: ${elapsedMs} ms`);
    assert.ok(elapsedMs < 2000);
  });
});

/** Those that a model would quote: of some length, and of words more than of a table's figures. */
function sentencesIn(pages: readonly string[]): Sentence[] {
  return pages.flatMap((page, index) =>
    [...sentencesOf(page)]
      .map(({ start, end }) => ({ page: index + 1, start, end, text: page.slice(start, end) }))
      .filter(({ text }) => text.length >= 40 && text.length <= 300 && lettersOf(text).length > text.length * 0.6),
  );
}

/** Checked another way than the search does: by the letters and figures alone, in one case. */
function lettersOf(text: string): string {
  return text
    .normalize('NFKC')
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, '');
}

function isSame(own: Sentence, place: { page: number; start: number; end: number }, pages: readonly string[]): boolean {
  // A citation mark at an end, dropped by the model, is not part of what was found.
  const isInside = own.page === place.page && place.start >= own.start - 5 && place.end <= own.end + 5;
  if (isInside && place.end - place.start >= 0.8 * (own.end - own.start)) return true;
  // The paper may say it twice.
  return lettersOf(pages[place.page - 1]?.slice(place.start, place.end) ?? '') === lettersOf(own.text);
}
