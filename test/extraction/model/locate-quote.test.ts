import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { foldText } from '../../../src/extraction/model/fold-text.ts';
import { locateQuote } from '../../../src/extraction/model/locate-quote.ts';

const PAGES = [
  'Aspirin for head-\nache: a randomised “double-blind” trial [1].\nWe enrolled 1,204 adults (mean age 52·5 years) in 12 clinics [3, 5–7].',
  'The primary outcome was freedom from pain at two hours. Efﬁcacy was “clear” (p ≤ 0.05).\nPain was gone in 310 of 602 patients. Pain was gone in 210 of 602 controls. Adverse events were rare, mild and short in both groups, and no patient left the trial because of them.',
];

/** The piece of the page that a quote is found as. */
function found(quote: string, pages: readonly string[] = PAGES): string | undefined {
  const place = locateQuote(pages, quote);
  return place && pages[place.page - 1]?.slice(place.start, place.end);
}

describe('a quote is found as it stands in the page, although', () => {
  const rows: [string, string, string][] = [
    [
      'the line breaks and the word is hyphenated',
      'Aspirin for headache: a randomised',
      'Aspirin for head-\nache: a randomised',
    ],
    ['quotation marks are others', "randomised 'double-blind' trial", 'randomised “double-blind” trial'],
    ['a ligature is taken apart', 'Efficacy was "clear"', 'Efﬁcacy was “clear”'],
    ['the decimal point is another', '(mean age 52.5 years)', '(mean age 52·5 years)'],
    ['thousands are not parted', 'We enrolled 1204 adults', 'We enrolled 1,204 adults'],
    ['citation marks are left out', 'in 12 clinics.', 'in 12 clinics'],
    ['signs are written otherwise', 'was clear (p <= 0.05)', 'was “clear” (p ≤ 0.05)'],
    ['case differs', 'THE PRIMARY OUTCOME WAS FREEDOM FROM PAIN', 'The primary outcome was freedom from pain'],
    [
      'letters are wrong',
      'Adverse event were rare, mild and shorrt in both groups',
      'Adverse events were rare, mild and short in both groups',
    ],
    [
      'words are left out with an ellipsis',
      'The primary outcome … at two hours.',
      'The primary outcome was freedom from pain at two hours.',
    ],
    ['it ends in an ellipsis', 'Pain was gone in 310 of 602...', 'Pain was gone in 310 of 602'],
  ];
  for (const [name, quote, expected] of rows) test(name, () => assert.equal(found(quote), expected));
});

describe('a quote is not found where', () => {
  const rows: [string, string][] = [
    ['it stands nowhere', 'The trial was stopped early because of harm.'],
    ['a number is another', 'Pain was gone in 311 of 602 patients.'],
    ['a number is added', 'Adverse events were rare, mild and short in both groups (n = 3), and no patient left'],
    ['it is too short to say anything', '12'],
    ['it is short and stands twice', 'of 602'],
    ['it is short and no whole word', 'andomise'],
    ['it is empty or but marks', '… "" .'],
    ['the pieces stand in another order', 'at two hours … The primary outcome was freedom'],
    ['the pieces stand on different pages', 'We enrolled 1,204 adults … Adverse events were rare'],
  ];
  for (const [name, quote] of rows) test(name, () => assert.equal(found(quote), undefined));
});

test('of several places the one that is most like the quote is taken, else the first', () => {
  const pages = [
    'METHODS OF THE TRIAL are given.',
    'Methods of the trial are given.',
    'methods of the trial are given',
  ];
  assert.equal(locateQuote(pages, 'Methods of the trial are given')?.page, 2);
  assert.equal(locateQuote(pages, 'methods of the Trial are given')?.page, 1);
});

test('sentences that nearly every paper has are not taken for those of another', () => {
  const pages = [
    'All authors read and approved the final manuscript. The participants provided written informed consent.',
  ];
  assert.equal(found('All authors have read and approved the final manuscript.', pages), undefined);
  assert.equal(found('Patients provided written, informed consent.', pages), undefined);
});

test('a quote over the end of a page is given by its longer part', () => {
  const pages = ['One two three. The mean difference between the two groups', 'was small.'];
  assert.equal(
    found('The mean difference between the two groups was small.', pages),
    'The mean difference between the two groups',
  );
});

test('pages, offsets and folds are right around characters of two units', () => {
  const pages = ['', '𝒳 of 😀 tests was ﬃne 𝟏𝟐 times over'];
  assert.deepEqual(locateQuote(pages, 'X of tests was ffine 12 times'), { page: 2, start: 0, end: 33, isExact: true });
  const { text, starts, ends } = foldText('a𝟏ﬃ');
  assert.deepEqual([text, [...starts], [...ends]], ['a1ffi', [0, 1, 3, 3, 3], [1, 3, 4, 4, 4]]);
});

test('markup is no part of the words', () => {
  const pages = ['The *p* value<sup>a</sup> was <b>0.03</b> ([Table 2](#tab2)) &lt; 0.05 and \\*significant'];
  assert.equal(found('The p value was 0.03 (Table 2) < 0.05 and significant', pages)?.length, pages[0]?.length);
});

test('no quote takes long, whatever it is', () => {
  const pages = ['ab '.repeat(70_000)];
  const started = performance.now();
  for (const quote of [
    'ab'.repeat(500),
    'ba '.repeat(300),
    `${'ab'.repeat(200)}x${'ab'.repeat(200)}`,
    '… '.repeat(500),
  ]) {
    locateQuote(pages, quote);
  }
  assert.ok(performance.now() - started < 2000);
});
