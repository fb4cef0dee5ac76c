import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { FieldValue } from '../../src/extraction/engine.ts';
import type { TaskResult } from '../../src/tasks/task.ts';
import { client } from '../support/client.ts';
import { corpusFiles, corpusPath, goldRegistrations, skipWithoutCorpus } from '../support/corpus.ts';
import { openTestDatabase } from '../support/database.ts';
import { makeDocuments, TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';
import { startProcess } from '../support/process.ts';
import { until } from '../support/waiting.ts';

const { sql, url: databaseUrl } = await openTestDatabase(import.meta.url);
const samples = fileURLToPath(new URL('../../samples/', import.meta.url));

const fieldsOf = (result: TaskResult) => result.data as Record<string, FieldValue>;

test('the sample papers become the table that their authors know, and the broken one an honest error', async () => {
  const service = await startProcess(databaseUrl);
  const api = client(service.url);
  const expected: Record<string, Record<string, unknown>> = JSON.parse(
    await readFile(`${samples}expected.json`, 'utf8'),
  );
  const names = Object.keys(expected);
  const documentIds = await api.upload(
    'samples',
    names.map((name) => `${samples}papers/${name}`),
  );
  const taskId = await api.createTask('samples', TRIAL_TEMPLATE_ID, documentIds);
  const progress = await api.closed(taskId);
  const broken = names.filter((name) => !expected[name]?.readable).length;
  assert.deepEqual([progress.success, progress.failed, progress.percent], [names.length - broken, broken, 100]);

  const results = await api.results(taskId);
  assert.deepEqual(
    results.map((result) => result.filename),
    names,
  );
  for (const result of results) {
    const truth = expected[result.filename];
    assert.ok(truth);
    if (!truth.readable) {
      assert.deepEqual([result.status, result.error?.code], ['error', 'pdf_invalid']);
      continue;
    }
    assert.equal(result.status, 'completed');
    const values = fieldsOf(result);
    for (const key of ['registration_number', 'title', 'doi', 'randomised']) {
      assert.equal(values[key]?.value ?? null, truth[key], `${result.filename}: ${key}`);
    }
    // A rule may leave a number to the reader, but not say a wrong one.
    const number = values.number_randomised?.value ?? null;
    assert.ok(number === null || number === truth.number_randomised, `${result.filename}: ${number} randomised`);
  }
  assert.equal(await service.stop(), 0);
});

test(
  'real papers and broken files in one task: each broken one ends as its own error, the others are read',
  skipWithoutCorpus,
  async () => {
    const service = await startProcess(databaseUrl);
    const api = client(service.url);
    const files = ['pdf', 'broken'].flatMap((folder) =>
      corpusFiles(folder).map((name) => corpusPath(`${folder}/${name}`)),
    );
    const documentIds = await api.upload('corpus', files);
    const taskId = await api.createTask('corpus', TRIAL_TEMPLATE_ID, documentIds);
    await api.closed(taskId);
    const results = await api.results(taskId);
    const codes = Object.fromEntries(results.map(({ filename, error }) => [filename, error?.code ?? null]));
    assert.deepEqual(codes, {
      ...Object.fromEntries(corpusFiles('pdf').map((name) => [name, null])),
      'html.pdf': 'pdf_invalid',
      'not-a-pdf.pdf': 'pdf_invalid',
      'owner-password.pdf': null,
      'password.pdf': 'pdf_password',
      'scanned.pdf': 'needs_ocr',
      'truncated.pdf': 'pdf_invalid',
      'zero.pdf': 'document_empty',
    });
    const trial = results.find((result) => result.filename === 'smoking-pregnancy-trial.pdf');
    assert.ok(trial);
    assert.equal(fieldsOf(trial).randomised?.value, true);
    assert.equal(await service.stop(), 0);
  },
);

test(
  'a task over 124 real papers is shared by two processes; registration numbers are right, and all values stand in their papers',
  skipWithoutCorpus,
  async () => {
    const services = await Promise.all([startProcess(databaseUrl), startProcess(databaseUrl)]);
    const api = client(services[0].url);
    const texts = corpusFiles('text');
    const files = ['text', 'pdf'].flatMap((folder) =>
      corpusFiles(folder).map((name) => corpusPath(`${folder}/${name}`)),
    );
    const documentIds = await api.upload('all', files);
    const taskId = await api.createTask('all', TRIAL_TEMPLATE_ID, documentIds);
    const progress = await api.closed(taskId, 120_000);
    assert.deepEqual([progress.total, progress.success], [documentIds.length, documentIds.length]);

    const workers = await sql`
    select worker, count(*)::int as papers
    from asl_schema.extraction_attempt where task_id = ${taskId} group by worker`;
    assert.equal(workers.length, 2);
    for (const { papers } of workers) assert.ok(papers >= 20, `one process did ${papers} of ${documentIds.length}`);

    const results = new Map((await api.results(taskId)).map((result) => [result.filename, result]));
    let standing = 0;
    let right = 0;
    for (const { file, number, standsInText } of goldRegistrations()) {
      if (!standsInText) continue;
      standing += 1;
      const result = results.get(file);
      if (result && fieldsOf(result).registration_number?.value === number) right += 1;
    }
    assert.ok(standing > 40 && right / standing >= 0.95, `${right} of ${standing} registration numbers are right`);

    for (const name of texts) {
      const text = (await readFile(corpusPath(`text/${name}`), 'utf8')).replaceAll(/\s+/g, ' ');
      const result = results.get(name);
      assert.ok(result);
      for (const [key, field] of Object.entries(fieldsOf(result))) {
        const quotes = [field.quote, ...(field.passages ?? []).map((passage) => passage.text)];
        for (const quote of quotes) {
          if (quote === null) continue;
          assert.ok(
            text.includes(quote.replaceAll(/\s+/g, ' ')),
            `${result.filename}: ${key} rests on words that are not there`,
          );
        }
        assert.equal(field.value === null, field.status !== 'found');
        if (field.status === 'found') assert.ok(field.quote);
      }
    }
    assert.deepEqual(await Promise.all(services.map((service) => service.stop())), [0, 0]);
  },
);

test('api, worker and aggregator in processes of their own work through PostgreSQL alone, and the task closes within a second', async () => {
  const [apiOnly, workerOnly, aggregatorOnly] = await Promise.all(
    ['api', 'worker', 'aggregator'].map((ROLES) => startProcess(databaseUrl, { ROLES })),
  );
  assert.ok(apiOnly && workerOnly && aggregatorOnly);
  assert.deepEqual([workerOnly.url, aggregatorOnly.url], ['', '']);
  const api = client(apiOnly.url);
  const documentIds = await makeDocuments(sql, 'apart', 5);
  const taskId = await api.createTask('apart', TRIAL_TEMPLATE_ID, documentIds);
  await api.closed(taskId);
  const [lag] = await sql<{ ms: number }[]>`
    select extract(epoch from t.completed_at - max(r.finished_at))::float8 * 1000 as ms
    from asl_schema.extraction_task t join asl_schema.extraction_result r on r.task_id = t.id
    where t.id = ${taskId} group by t.id`;
  assert.ok(lag && lag.ms < 1000, `closed ${lag?.ms} ms after the last result`);
  const stops = [apiOnly, workerOnly, aggregatorOnly].map((service) => service.stop());
  assert.deepEqual(await Promise.all(stops), [0, 0, 0]);
});

test('of two aggregators one does the round that is due, and the other leaves it to that one', async () => {
  const env = { ROLES: 'aggregator', AGGREGATOR_INTERVAL_SECONDS: '1' };
  const services = await Promise.all([startProcess(databaseUrl, env), startProcess(databaseUrl, env)]);
  const rounds: { at: number; by: string }[] = [];
  await until('five rounds', async () => {
    const [tick] = await sql<{ at: number; by: string }[]>`
      select extract(epoch from swept_at)::float8 as at, swept_by as by from asl_schema.aggregator_tick where mode = 'scatter'`;
    if (tick && tick.at !== rounds.at(-1)?.at) rounds.push(tick);
    return rounds.length >= 6;
  });
  for (let i = 2; i < rounds.length; i++) {
    const apart = (rounds[i]?.at ?? 0) - (rounds[i - 1]?.at ?? 0);
    assert.ok(apart >= 0.99 && apart < 3, `rounds ${apart} s apart`);
  }
  await Promise.all(services.map((service) => service.stop()));
});

test('a process that cannot reach its database, or is configured wrongly, says so and ends', async () => {
  await assert.rejects(startProcess('postgres://nobody@127.0.0.1:1/nothing'), /sheaf can't start/);
  await assert.rejects(startProcess(databaseUrl, { PORT: 'eighty' }), /PORT must be a whole number/);
});
