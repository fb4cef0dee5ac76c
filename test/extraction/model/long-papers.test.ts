import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { extractWithModel } from '../../../src/extraction/model/extract-with-model.ts';
import { groupFields } from '../../../src/extraction/model/group-fields.ts';
import { MAX_PARTS, planParts } from '../../../src/extraction/model/plan-parts.ts';
import { estimateTokens } from '../../../src/extraction/model/tokens.ts';
import { paperOf } from '../../support/model-server.ts';
import { field, textDocument } from '../support.ts';
import { failureOf, setUp, signal } from './support.ts';

/** Paragraphs of words that tell where they stand. */
const filler = (name: string, count: number) =>
  Array.from({ length: count }, (_, index) =>
    `In ${name} paragraph ${index} many things are said at length. `.repeat(4).trim(),
  ).join('\n\n');

const LONG = [
  'A long trial of aspirin',
  'INTRODUCTION',
  filler('introduction', 20),
  'METHODS',
  filler('methods', 20),
  'We enrolled 500 patients.',
  'RESULTS',
  filler('results', 20),
  'In the end 480 patients were analysed.',
  'REFERENCES',
  filler('references', 20),
].join('\n\n');

describe('a paper that is longer than a prompt', () => {
  test('is sent whole, section by section, the references last', () => {
    const parts = planParts(textDocument(LONG), 1500);
    assert.ok(parts.length > 3);
    for (const part of parts) assert.ok(estimateTokens(part) <= 1500);
    const all = parts.join('\n');
    for (const paragraph of LONG.split('\n\n')) assert.ok(all.includes(paragraph), paragraph);
    const order = ['A long trial', 'In methods', 'In results', 'In introduction', 'In references'].map((text) =>
      all.indexOf(text),
    );
    assert.deepEqual(
      order,
      order.toSorted((a, b) => a - b),
    );
  });

  test('is cut between paragraphs, and each part goes on a little before where the last one ended', () => {
    const [first = '', second = ''] = planParts(textDocument(LONG), 1500);
    assert.ok(first.endsWith('at length.'));
    const [firstParagraph = ''] = second.split('\n');
    const repeated = first.slice(first.lastIndexOf(firstParagraph));
    assert.ok(repeated.length < first.length / 5 && second.startsWith(repeated));
  });

  test('without paragraphs, sentences or blanks is cut all the same, and never inside a character', () => {
    for (const text of ['x'.repeat(20_000), '😀'.repeat(9000), 'word '.repeat(9000), '中文。'.repeat(4000)]) {
      const parts = planParts(textDocument(text), 1000);
      assert.ok(parts.every((part) => part.isWellFormed() && estimateTokens(part) <= 1000));
      assert.ok(parts.join('').replace(/\s/g, '').length >= text.replace(/\s/g, '').length);
    }
  });

  test('that fits is one part in its own order', () => {
    assert.deepEqual(planParts(textDocument('b', '', 'a'), 1000), ['b\n\n\n\na']);
  });

  test('beyond all measure is refused, quickly, and not cut', () => {
    const started = performance.now();
    assert.throws(() => planParts(textDocument('many words '.repeat(1_000_000)), 1000), { code: 'document_too_long' });
    assert.throws(() => planParts(textDocument(LONG.repeat(20)), 500), { code: 'document_too_long' });
    assert.ok(performance.now() - started < 5000 && MAX_PARTS === 64);
  });

  test('gives each value by the first section that grounds it, the others as alternatives', async (t) => {
    const { server, client } = await setUp(
      t,
      {
        answer({ paper }) {
          const quote = /(?:We enrolled|In the end) \d+ patients/.exec(paper)?.[0];
          if (quote !== undefined) return { value: Number(/\d+/.exec(quote)?.[0]), quote };
          return paper.includes('In references') ? { value: 9, quote: 'made up by the model' } : undefined;
        },
      },
      { contextTokens: 3000 },
    );
    const input = { text: textDocument(LONG), fields: [field('n', 'integer')], client, signal: signal() };
    const { n } = (await extractWithModel(input)).data;
    assert.ok(server.requests.length > 3);
    assert.deepEqual([n?.value, n?.status, n?.quote], [500, 'found', 'We enrolled 500 patients']);
    const start = LONG.indexOf('In the end');
    assert.deepEqual(n?.alternatives, [
      { value: '480', page: 1, start, end: start + 'In the end 480 patients'.length },
    ]);
  });
});

describe('a context that is smaller than was thought', () => {
  const answer = ({ paper }: { paper: string }) =>
    paper.includes('We enrolled 500') ? { value: 500, quote: 'We enrolled 500 patients' } : undefined;
  const fields = [field('n', 'integer')];
  const text = textDocument(LONG);

  for (const dialect of ['openai', 'vllm', 'llamacpp', 'lmstudio'] as const) {
    test(`is learnt from ${dialect}'s refusal, once`, async (t) => {
      const { server, client } = await setUp(t, { dialect, contextTokens: 3000, answer });
      const { data, usage } = await extractWithModel({ text, fields, client, signal: signal() });
      assert.equal(data.n?.value, 500);
      const asked = server.requests.length;
      assert.equal(usage.requests, asked);
      assert.ok(asked > 3);
      await extractWithModel({ text, fields, client, signal: signal() });
      assert.equal(server.requests.length - asked, asked - 1);
    });
  }

  test('is permanent where the server refuses what it has asked for', async (t) => {
    const { server, client } = await setUp(t);
    const refusal = {
      status: 400,
      body: { error: { message: 'Context length exceeded', code: 'context_length_exceeded' } },
    };
    server.faults.push(refusal, refusal);
    const error = await failureOf(extractWithModel({ text, fields, client, signal: signal() }));
    assert.deepEqual([error.errorClass, error.code, error.usage.requests], ['permanent', 'context_exceeded', 2]);
  });

  test('is noticed where the server cuts in silence: no value comes of a cut prompt', async (t) => {
    const { server, client } = await setUp(t, { dialect: 'ollama', contextTokens: 2048, answer });
    const { data } = await extractWithModel({ text, fields, client, signal: signal() });
    assert.equal(data.n?.value, 500);
    // After the first none was cut.
    for (const { body } of server.requests.slice(1)) {
      assert.ok(body.messages.reduce((sum, { content }) => sum + content.length, 0) / 4 <= 2048);
      assert.ok(paperOf(body).length > 500);
    }
    const asked = server.requests.length;
    await extractWithModel({ text, fields, client, signal: signal() });
    assert.equal(server.requests.length, 2 * asked - 1);
  });

  test('that is too small for any part of a paper is said so', async (t) => {
    const { server, client } = await setUp(t, { dialect: 'ollama', contextTokens: 300, answer });
    const error = await failureOf(extractWithModel({ text, fields, client, signal: signal() }));
    assert.deepEqual([error.errorClass, error.code], ['permanent', 'prompt_truncated']);
    assert.match(error.message, /cut a prompt of about \d+ tokens/);
    assert.ok(error.usage.requests === server.requests.length && server.requests.length < 30);
  });

  test('does not follow from a server that counts nothing', async (t) => {
    const { server, client } = await setUp(t);
    const n = { value: 500, quote: 'We enrolled 500 patients', status: 'found' };
    server.faults.push({ message: { content: JSON.stringify({ n }) }, usage: {} });
    const { data } = await extractWithModel({ text, fields, client, signal: signal() });
    assert.deepEqual([data.n?.value, server.requests.length], [500, 1]);
  });
});

test('a template of two hundred fields is asked in groups, and answered in its order', async (t) => {
  const fields = Array.from({ length: 200 }, (_, index) =>
    field(`f${index}`, 'text', { description: 'What is it? '.repeat(10) }),
  );
  const { server, client } = await setUp(t, {
    answer: ({ key }) => ({ value: key, quote: 'A long trial of aspirin' }),
  });
  const { data } = await extractWithModel({ text: textDocument(LONG), fields, client, signal: signal() });
  assert.deepEqual(
    Object.keys(data),
    fields.map(({ key }) => key),
  );
  assert.ok(Object.values(data).every(({ value }) => typeof value === 'string'));
  assert.equal(server.requests.length, groupFields(fields, client.limits).length);
  assert.ok(server.requests.length > 1 && server.requests.length < 12);
});
