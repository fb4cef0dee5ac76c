import assert from 'node:assert/strict';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { after, describe, test } from 'node:test';
import { createEmbeddedEngine } from '../../src/extraction/embedded-engine.ts';
import type { ExtractionInput } from '../../src/extraction/engine.ts';
import { corpusFile, skipWithoutCorpus } from '../support/corpus.ts';
import { FIELDS, field } from './support.ts';

const SMALL = new TextEncoder().encode('TITLE: Aspirin for headache in adults\nMETHODS\nRegistered as NCT01234567.');

function input(content: Uint8Array, more: Partial<ExtractionInput> = {}): ExtractionInput {
  const signal = new AbortController().signal;
  return {
    taskId: 'task',
    content,
    filename: 'paper.txt',
    mediaType: 'text/plain',
    fields: FIELDS,
    signal,
    whileWaiting: (wait) => wait,
    ...more,
  };
}

describe('the embedded engine', () => {
  const engine = createEmbeddedEngine({ threads: 2 });
  after(() => engine.close());

  test('gives one JSON-safe entry a field, and leaves the caller its buffer', async () => {
    const pooled = Buffer.from(Buffer.concat([SMALL, SMALL]));
    const view = pooled.subarray(0, SMALL.length);
    const { data, usage } = await engine.extract(input(view));
    assert.deepEqual(
      Object.keys(data),
      FIELDS.map(({ key }) => key),
    );
    assert.equal(data.registration_number?.value, 'NCT01234567');
    assert.deepEqual(usage, { pages: 1, characters: SMALL.length });
    assert.deepEqual(JSON.parse(JSON.stringify(data)), data);
    assert.equal(view.toString(), new TextDecoder().decode(SMALL));
  });

  test('takes more papers than it has threads', async () => {
    const results = await Promise.all(Array.from({ length: 20 }, () => engine.extract(input(SMALL))));
    assert.equal(new Set(results.map(({ data }) => data.title?.value)).size, 1);
  });

  test('errors keep their code and class across the thread', async () => {
    const text = input(SMALL, { mediaType: 'application/pdf', filename: 'paper.pdf' });
    await assert.rejects(engine.extract(text), {
      name: 'ExtractionError',
      code: 'pdf_invalid',
      errorClass: 'permanent',
    });
    const pattern = input(SMALL, { fields: [field('x', 'text', { pattern: '(' })] });
    await assert.rejects(engine.extract(pattern), { code: 'pattern_invalid', errorClass: 'permanent' });
  });

  test('a signal that has fired stops it before it begins', async () => {
    const reason = new Error('the claim was lost');
    await assert.rejects(engine.extract(input(SMALL, { signal: AbortSignal.abort(reason) })), reason);
  });

  test('a signal that fires stops a busy thread at once, and only that one', async () => {
    const controller = new AbortController();
    const reason = new Error('time is over');
    const long = engine.extract(input(longText(), { signal: controller.signal }));
    const other = engine.extract(input(SMALL));
    setTimeout(() => controller.abort(reason), 300);
    const started = performance.now();
    await assert.rejects(long, reason);
    assert.ok(performance.now() - started < 2000);
    assert.equal((await other).data.title?.status, 'found');
  });

  test("the caller's event loop keeps its rhythm while a PDF is read", skipWithoutCorpus, async () => {
    const content = corpusFile('pdf/smoking-pregnancy-trial.pdf');
    await engine.extract(input(SMALL));
    const delay = monitorEventLoopDelay({ resolution: 5 });
    delay.enable();
    await engine.extract(input(content, { mediaType: 'application/pdf' }));
    delay.disable();
    assert.ok(delay.percentile(95) < 60e6, `95 % of turns within ${delay.percentile(95) / 1e6} ms`);
  });

  test('the real PDFs have their titles and DOIs', skipWithoutCorpus, async () => {
    const expected = {
      'smoking-pregnancy-trial': ['Physical activity for smoking cessation in pregnancy', '10.1136/bmj.h2145'],
      'trauma-review': ['Complications related to deep venous thrombosis prophylaxis', '10.1186/1752-2897-4-1'],
      'rehabilitation-article': ['Patient Experiences of Structured Heart Failure', '10.1155/2010/157939'],
      'health-services-article': ['Understanding the barriers to setting up a healthcare', '10.1186/1472-6963-14-1'],
    };
    for (const [name, [title, doi]] of Object.entries(expected)) {
      const { data } = await engine.extract(input(corpusFile(`pdf/${name}.pdf`), { mediaType: 'application/pdf' }));
      assert.ok(String(data.title?.value).startsWith(title ?? '?'), `${name}: ${data.title?.value}`);
      assert.equal(data.doi?.value, doi);
    }
  });
});

test('a paper that exhausts its thread is too complex, and the others go on', async () => {
  const engine = createEmbeddedEngine({ threads: 2, threadMemoryMegabytes: 48 });
  try {
    const big = engine.extract(input(longText()));
    const small = Promise.all(Array.from({ length: 5 }, () => engine.extract(input(SMALL))));
    await assert.rejects(big, { code: 'document_too_complex', errorClass: 'permanent' });
    assert.equal((await small).length, 5);
    assert.equal((await engine.extract(input(SMALL))).data.title?.status, 'found');
  } finally {
    await engine.close();
  }
});

test('a paper that keeps its thread for too long is too complex; one that waited behind it has its whole time left', async () => {
  const engine = createEmbeddedEngine({ threads: 1, paperTimeoutMs: 2500 });
  try {
    let waits = 0;
    const whileWaiting = <T>(wait: Promise<T>): Promise<T> => {
      waits += 1;
      return wait;
    };
    const long = engine.extract(input(longText(2), { whileWaiting }));
    const behind = engine.extract(input(SMALL, { whileWaiting }));
    await assert.rejects(long, { code: 'document_too_complex', errorClass: 'permanent' });
    assert.equal((await behind).data.title?.status, 'found');
    assert.equal(waits, 2);
  } finally {
    await engine.close();
  }
});

/** Twenty million characters of prose, or a multiple of that: several seconds of work. */
function longText(times = 1): Uint8Array {
  return new TextEncoder().encode('The patients took part in a study of 12 weeks. '.repeat(420_000 * times));
}
