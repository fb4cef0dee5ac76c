import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readContentList } from '../../../src/extraction/mineru/content-list.ts';
import { markdownText, tableText } from '../../../src/extraction/mineru/table-text.ts';

describe('the blocks of MinerU', () => {
  test('become markdown, page by page, and pages without blocks keep their number', () => {
    const paged = readContentList([
      { type: 'text', text: 'Title', text_level: 1, page_idx: 0 },
      { type: 'text', text: 'After an empty page.', page_idx: 2 },
    ]);
    assert.deepEqual(paged?.pages, ['# Title', '', 'After an empty page.']);
  });

  const kinds: [string, Record<string, unknown>, string][] = [
    ['equations', { type: 'equation', text: '$$\nx = 1\n$$', text_format: 'latex' }, '$$\nx = 1\n$$'],
    ['lists', { type: 'list', list_items: ['one', '[2] two', '3. three'] }, '- one\n[2] two\n3. three'],
    [
      'tables',
      {
        type: 'table',
        table_caption: ['Table 1'],
        table_body: '<table><tr><td>Arm</td><td>n</td></tr><tr><td>Aspirin</td><td>60</td></tr></table>',
        table_footnote: ['n: number'],
      },
      'Table 1\nArm | n\nAspirin | 60\nn: number',
    ],
    ['pictures', { type: 'image', image_caption: ['Fig. 1'], content: 'A red curve' }, 'Fig. 1'],
    ['charts', { type: 'chart', chart_caption: ['Fig. 2'], content: '| 1 | 2 |' }, 'Fig. 2'],
    ['code', { type: 'code', code_caption: ['Listing'], code_body: 'x <- 1' }, 'Listing\nx <- 1'],
    ['footnotes', { type: 'page_footnote', text: 'Funded by X' }, 'Funded by X'],
    ['kinds that are not known', { type: 'phonetic', text: 'Words' }, 'Words'],
    ['invisible characters', { type: 'text', text: 'a\u00adb\u00a0c\u0000d\fe' }, 'ab c d\ne'],
  ];
  for (const [what, block, expected] of kinds) {
    test(`${what} are kept as text`, () => {
      assert.deepEqual(readContentList([{ ...block, page_idx: 0 }])?.pages, [expected]);
    });
  }

  test('running headers count on the first page only, page numbers on none', () => {
    const furniture = (page: number) => [
      { type: 'header', text: 'doi:10.1/x', page_idx: page },
      { type: 'text', text: `Page ${page}`, page_idx: page },
      { type: 'page_number', text: '17', page_idx: page },
    ];
    assert.deepEqual(readContentList([...furniture(0), ...furniture(1)])?.pages, ['doi:10.1/x\n\nPage 0', 'Page 1']);
  });

  test('a heading is told by its place, on one line', () => {
    const paged = readContentList([
      { type: 'text', text: 'Before.', page_idx: 0 },
      { type: 'text', text: 'Trial\nregistration ', text_level: 9, page_idx: 0 },
    ]);
    assert.deepEqual(paged?.pages, ['Before.\n\n###### Trial registration']);
    assert.deepEqual(paged?.headings, [{ page: 1, start: 16, end: 34, level: 9, text: 'Trial registration' }]);
    assert.equal(paged?.pages[0]?.slice(16, 34), 'Trial registration');
  });

  test('what is no list of blocks with text is nothing', () => {
    for (const value of [undefined, null, 'text', {}, [], [1, null], [{ type: 'image', page_idx: 0 }]]) {
      assert.equal(readContentList(value), undefined);
    }
    assert.equal(readContentList([{ type: 'text', text: 'x', page_idx: 1e9 }]), undefined);
    assert.equal(readContentList([{ type: 'text', text: 'x', page_idx: -1 }]), undefined);
  });
});

describe('a table of MinerU', () => {
  test('keeps its columns where cells span rows and columns, and says each word once', () => {
    const html =
      '<html><body><table><tr><td rowspan="2">Site</td><td colspan=2>Percentile</td></tr><tr><td>10</td><td>20</td></tr>' +
      '<tr><th>Redhill</th><td>P&lt;0.05</td><td>12&plusmn;3<br/>days</td></tr></table></body></html>';
    assert.equal(
      tableText(html),
      'Site | Percentile |\n | 10 | 20\nRedhill | P<0.05 | 12±3 days'.replace('\n |', '\n|'),
    );
  });

  test('leaves a sign for less alone, and anything that is no table', () => {
    assert.equal(tableText('<table><tr><td>p<0.05 <b>bold</b></td></tr></table>'), 'p<0.05 bold');
    assert.equal(tableText('a & b &unknown; &#963;'), 'a & b &unknown; σ');
    assert.equal(tableText(''), '');
  });

  test('is not filled by a wrong span, nor slow on hostile text', () => {
    assert.ok(tableText('<table><tr><td colspan="9999">x</td></tr></table>').length < 400);
    const started = performance.now();
    tableText(`<table><tr><td>${'<a'.repeat(200_000)}`);
    markdownText(`${'<table'.repeat(50_000)} ${'![['.repeat(50_000)}`);
    assert.ok(performance.now() - started < 2000);
  });

  test('within markdown becomes text, and pictures go', () => {
    assert.equal(
      markdownText('A\n<table><tr><td>1</td><td>2</td></tr></table>\nB ![x](images/1.jpg) C'),
      'A\n\n1 | 2\n\nB  C',
    );
  });
});
