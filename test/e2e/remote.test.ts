import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { loadConfig } from '../../src/config.ts';
import type { FieldValue } from '../../src/extraction/engine.ts';
import { readStages, resumeStage, setStage } from '../../src/permits/stage-store.ts';
import { startService } from '../../src/service.ts';
import { client } from '../support/client.ts';
import { corpusFile, corpusFiles, skipWithoutCorpus } from '../support/corpus.ts';
import { openTestDatabase } from '../support/database.ts';
import { makePdf } from '../support/make-pdf.ts';
import { readForm, startStandIn } from '../support/mineru-server.ts';
import { seeded } from '../support/model-roughen.ts';
import { type Fault, modelServer } from '../support/model-server.ts';
import { until } from '../support/waiting.ts';

const { sql, url: databaseUrl } = await openTestDatabase(import.meta.url);

/** A MinerU that knows papers by the name in their PDF, and a model that answers from what it is shown. */
async function standIns(papers: ReadonlyMap<string, string>, faultRate: number) {
  const chance = seeded(7);
  const tasks = new Map<string, string>();
  const parsed = new Map<string, number>();
  const unlucky = () => chance() < faultRate;
  const mineru = await startStandIn({
    'GET /health': () => ({ json: { status: 'healthy', version: '3.4.4', protocol_version: 2 } }),
    'POST /tasks': async (request) => {
      if (unlucky()) return { status: 502, json: { detail: 'Bad Gateway' } };
      const { file } = await readForm(request);
      const name = /PAPER ([^\s)]+)/.exec(await file.text())?.[1] ?? '';
      const id = crypto.randomUUID();
      tasks.set(id, name);
      return { status: 202, json: { task_id: id, status: 'pending', file_names: ['document'] } };
    },
    'GET /tasks/:id': ({ id }) =>
      unlucky() ? { status: 502, json: {} } : { json: { task_id: id, status: 'completed', error: null } },
    'GET /tasks/:id/result': ({ id }) => {
      if (unlucky()) return { status: 502, json: {} };
      const name = tasks.get(id) ?? '';
      parsed.set(name, (parsed.get(name) ?? 0) + 1);
      return {
        json: { version: '3.4.4', results: { document: { md_content: papers.get(name), content_list: null } } },
      };
    },
  });
  const model = await modelServer({
    answer: ({ key, paper }) => {
      if (key !== 'first_words') return undefined;
      const quote = /[A-Z][^.\n]{30,120}/.exec(paper)?.[0] ?? null;
      return { value: quote, quote };
    },
  });
  const kinds: Fault[] = [
    { status: 500, body: { error: { message: 'internal' } } },
    { ends: 'at once' },
    { ends: 'in the body' },
    { message: { role: 'assistant', content: '' } },
  ];
  for (let i = 0; i < 1000; i++) {
    const fault = unlucky() ? kinds[Math.floor(chance() * kinds.length)] : undefined;
    // The server shifts one a request; none means that it answers.
    model.faults.push(fault as Fault);
  }
  after(async () => {
    model.close();
    await mineru.close();
  });
  return { mineru, model, parsed };
}

async function start(mineruUrl: string, modelUrl: string, more: Record<string, string> = {}) {
  const env = {
    DATABASE_URL: databaseUrl,
    PORT: '0',
    LOG_LEVEL: 'error',
    RETRY_DELAY_SECONDS: '0',
    POLL_INTERVAL_MS: '100',
    MAX_ATTEMPTS: '20',
    MINERU_URL: mineruUrl,
    LLM_BASE_URL: modelUrl,
    LLM_MODEL: 'stand-in',
    LLM_PRICE_INPUT: '2',
    LLM_PRICE_OUTPUT: '8',
    ...more,
  };
  const service = await startService(loadConfig(env));
  after(() => service.stop());
  return { service, api: client(service.url ?? '') };
}

const field = { key: 'first_words', label: 'First words', type: 'text' };

async function upload(api: ReturnType<typeof client>, projectId: string, names: readonly string[]): Promise<string[]> {
  const form = new FormData();
  form.append('projectId', projectId);
  for (const name of names) {
    const bytes = makePdf([
      `PAPER ${name}`,
      'A page with enough letters on it to be taken for a text and not for a scan.',
    ]);
    form.append('files', new Blob([new Uint8Array(bytes)]), `${name}.pdf`);
  }
  const { data } = await api.call<{ data: { documentId: string }[] }>('POST', '/documents', form);
  return data.map((document) => document.documentId);
}

test('100 papers through a parser and a model of which every fifth answer is a fault: all completed, none parsed twice', {
  timeout: 180_000,
  ...skipWithoutCorpus,
}, async (t) => {
  const names = corpusFiles('text').slice(0, 100);
  const papers = new Map(names.map((name) => [name, new TextDecoder().decode(corpusFile(`text/${name}`))]));
  const { mineru, model, parsed } = await standIns(papers, 0.2);
  const { service, api } = await start(mineru.url, model.baseUrl, { WORKER_SLOTS: '20' });
  await setStage(sql, 'parse', { permits: 20 });
  const documentIds = await upload(api, 'remote', names);
  const { templateId } = await api.call<{ templateId: string }>('POST', '/templates', {
    name: 'remote',
    fields: [field],
  });
  const startedAt = performance.now();
  const taskId = await api.createTask('remote', templateId, documentIds);
  const progress = await api.closed(taskId, 150_000);
  t.diagnostic(`100 papers in ${Math.round((performance.now() - startedAt) / 1000)} s`);
  assert.deepEqual([progress.success, progress.failed], [100, 0]);
  assert.deepEqual(
    [...parsed.values()].filter((times) => times !== 1),
    [],
  );
  assert.equal(parsed.size, 100);
  assert.ok(model.running.most <= 5, `${model.running.most} calls of the model at a time`);

  const results = await api.results(taskId);
  for (const { filename, data } of results) {
    const value = (data as Record<string, FieldValue>).first_words;
    assert.equal(value?.status, 'found', filename);
    assert.equal(value?.method, 'model:stand-in');
  }
  const status = await api.call<{ usage: Record<string, number> }>('GET', `/tasks/${taskId}/status`);
  const { promptTokens = 0, completionTokens = 0, cachedTokens = 0, cost = 0, requests = 0 } = status.usage;
  assert.ok(requests >= 100 && promptTokens > 100_000);
  assert.ok(
    Math.abs(cost - ((promptTokens - cachedTokens) * 2 + cachedTokens * 2 + completionTokens * 8) / 1e6) < 1e-6,
  );

  // The same papers in another task are not parsed again.
  const again = await api.createTask('remote', templateId, documentIds.slice(0, 10));
  await api.closed(again, 60_000);
  assert.deepEqual(
    [...parsed.values()].filter((times) => times !== 1),
    [],
  );
  await setStage(sql, 'parse', { permits: 2 });
  await service.stop();
});

test('a broken PDF costs no call of the parser; a key that is refused pauses the model for all, fails no paper, and is resumed', {
  timeout: 60_000,
}, async () => {
  const papers = new Map([['one.txt', 'Aspirin for headache in adults: a randomised controlled trial of 120 people']]);
  const { mineru, model } = await standIns(papers, 0);
  model.faults.splice(0);
  model.faults.push({ status: 401, body: { error: { message: 'Incorrect API key', code: 'invalid_api_key' } } });
  const { service, api } = await start(mineru.url, model.baseUrl);
  // A budget, and a minute that begins now.
  await setStage(sql, 'llm', { tokensPerMinute: 1_000_000 });
  await sql`update asl_schema.stage set window_started_at = now(), window_tokens = 0, window_requests = 0`;
  const { templateId } = await api.call<{ templateId: string }>('POST', '/templates', {
    name: 'paused',
    fields: [field],
  });
  const [good] = await upload(api, 'paused', ['one.txt']);
  const form = new FormData();
  form.append('projectId', 'paused');
  form.append('files', new Blob(['%PDF-1.4 and nothing more']), 'broken.pdf');
  const { data } = await api.call<{ data: { documentId: string }[] }>('POST', '/documents', form);
  const taskId = await api.createTask('paused', templateId, [good ?? '', data[0]?.documentId ?? '']);

  await until('the pause', async () => (await readStages(sql)).some(({ stage, pause }) => stage === 'llm' && pause));
  await until('the broken one', async () => (await api.status(taskId)).progress.failed === 1);
  const status = await api.call<{ paused: { stage: string; until: null }[] }>('GET', `/tasks/${taskId}/status`);
  assert.deepEqual(
    status.paused.map(({ stage, until: moment }) => [stage, moment]),
    [['llm', null]],
  );
  assert.equal(mineru.routes().filter((route) => route === 'POST /tasks').length, 1);

  await until('the good one put off', async () => {
    const put = await sql`
      select 1 from asl_schema.extraction_attempt where task_id = ${taskId} and outcome = 'deferred'`;
    return put.length > 0;
  });
  await resumeStage(sql, 'llm');
  // The paper waits a minute for a fault of the configuration; the operator has mended it before.
  await sql`update pgboss.job set start_after = now() where state < 'active'`;
  const progress = await api.closed(taskId);
  assert.deepEqual([progress.success, progress.failed], [1, 1]);
  const [result] = await api.results(taskId);
  assert.deepEqual([result?.status, result?.attempts], ['completed', 2]);
  const { promptTokens = 0, completionTokens = 0 } = (result?.usage ?? {}) as Record<string, number>;
  const llm = (await readStages(sql)).find(({ stage }) => stage === 'llm');
  assert.ok(promptTokens > 0);
  assert.equal(llm?.tokensUsed, promptTokens + completionTokens);
  await service.stop();
});
