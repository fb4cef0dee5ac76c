import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { stripVTControlCharacters, styleText } from 'node:util';
import { loadConfig } from '../src/config.ts';
import type { FieldValue } from '../src/extraction/engine.ts';
import { type Service, startService } from '../src/service.ts';
import type { Progress, TaskResult } from '../src/tasks/task.ts';
import { Complaint, isMain, repository, requireDatabaseUrl, runScript } from './cli.ts';
import { migrateDatabase } from './migrate.ts';

/**
 * A whole conversation with the service, for someone who sees it for the first time: starts it, and then talks to it as any
 * client does, over HTTP.
 */
async function demo(): Promise<number> {
  const databaseUrl = requireDatabaseUrl();
  say('Bringing the database to the current schema');
  await migrateDatabase(databaseUrl);
  const service = await startService(
    loadConfig({ ...process.env, PORT: '0', HOST: '127.0.0.1', ROLES: '', LOG_LEVEL: 'error' }),
  );
  try {
    await converse(service);
  } finally {
    await service.stop();
  }
  return 0;
}

async function converse({ url }: Service): Promise<void> {
  if (url === undefined) throw new Complaint('the service does not listen');
  const api = client(url);

  const form = await samplePapers();
  say(`POST /documents: ${form.getAll('files').length} sample papers, one of them broken on purpose`);
  const { data: documents } = await api<{ data: { documentId: string }[] }>('POST', '/documents', form);

  const { data: templates } = await api<{ data: { templateId: string; name: string }[] }>(
    'GET',
    '/templates?name=randomised-trial',
  );
  const templateId = templates[0]?.templateId;
  say('POST /tasks: the template for randomised trials over all of them');
  const documentIds = documents.map((document) => document.documentId);
  const { taskId } = await api<{ taskId: string }>('POST', '/tasks', { projectId: PROJECT, templateId, documentIds });

  await follow(() => api<{ status: string; progress: Progress }>('GET', `/tasks/${taskId}/status`));

  const { data: results } = await api<{ data: TaskResult[] }>('GET', `/tasks/${taskId}/results?limit=500`);
  process.stdout.write(`\n${table(results)}\n`);
  for (const { filename, error } of results) {
    if (error !== null) process.stdout.write(`${styleText('red', error.code)} ${filename}: ${error.message}\n`);
  }
  process.stdout.write(
    [
      '',
      'Every value stands in its paper, with quote, page and offsets. To look closer, run `make dev` and then',
      '',
      `  curl http://127.0.0.1:8080/tasks/${taskId}/status`,
      `  curl http://127.0.0.1:8080/tasks/${taskId}/results`,
      '',
    ].join('\n'),
  );
}

const PROJECT = 'demo';
const papers = join(repository, 'samples', 'papers');

async function samplePapers(): Promise<FormData> {
  const form = new FormData();
  form.append('projectId', PROJECT);
  for (const name of (await readdir(papers)).sort()) {
    if (name.endsWith('.pdf')) form.append('files', new Blob([await readFile(join(papers, name))]), name);
  }
  return form;
}

/** Calls the service; a problem that it answers with is the demo's own. */
function client(base: string) {
  return async <T>(method: string, path: string, body?: FormData | object): Promise<T> => {
    const init: RequestInit = { method };
    if (body instanceof FormData) init.body = body;
    else if (body !== undefined) {
      init.body = JSON.stringify(body);
      init.headers = { 'content-type': 'application/json' };
    }
    const response = await fetch(base + path, init);
    if (!response.ok) throw new Complaint(`${method} ${path} answered ${response.status}: ${await response.text()}`);
    return (await response.json()) as T;
  };
}

/** Shows a bar until the task is closed: redrawn on a terminal, a line for each change elsewhere. */
async function follow(look: () => Promise<{ status: string; progress: Progress }>): Promise<void> {
  const redraws = process.stdout.isTTY;
  let shown = '';
  for (;;) {
    const { status, progress } = await look();
    const { total, success, failed, percent } = progress;
    const done = Math.round((percent / 100) * 40);
    const bar = `${'█'.repeat(done)}${'░'.repeat(40 - done)}`;
    const line = `${bar} ${String(percent).padStart(3)} %  ${success} of ${total} extracted, ${failed} failed, ${status}`;
    if (line !== shown) process.stdout.write(redraws ? `\r\x1b[K${line}` : `${line}\n`);
    shown = line;
    if (status !== 'processing') break;
    await sleep(100);
  }
  if (redraws) process.stdout.write('\n');
}

/** A narrow terminal takes it from the titles. */
const titleWidth = Math.min(60, Math.max(12, (process.stdout.columns ?? 120) - 82));

const COLUMNS: { head: string; width: number; cell: (result: TaskResult) => string }[] = [
  { head: 'paper', width: 22, cell: ({ filename }) => filename.replace(/\.pdf$/, '') },
  { head: 'title', width: titleWidth, cell: (result) => value(result, 'title') },
  { head: 'registration', width: 19, cell: (result) => value(result, 'registration_number') },
  { head: 'random.', width: 7, cell: (result) => value(result, 'randomised') },
  { head: 'n', width: 5, cell: (result) => value(result, 'number_randomised') },
  { head: 'blinding', width: 18, cell: (result) => value(result, 'blinding') },
];

function table(results: readonly TaskResult[]): string {
  const row = (cells: string[]): string => cells.join('  ');
  const head = COLUMNS.map(({ head, width }) => styleText('bold', head.padEnd(width)));
  const rule = COLUMNS.map(({ width }) => '─'.repeat(width));
  const rows = results.map((result) => COLUMNS.map(({ width, cell }) => fit(cell(result), width)));
  return [head, rule, ...rows].map(row).join('\n');
}

/** What a cell says: the value, `–` where the paper does not report it, the error's code where there is none. */
function value(result: TaskResult, key: string): string {
  if (result.error !== null) return key === 'title' ? styleText('red', result.error.code) : '';
  const field = (result.data as Record<string, FieldValue>)[key];
  if (field === undefined || field.value === null) return styleText('dim', '–');
  if (typeof field.value === 'boolean') return field.value ? 'yes' : 'no';
  return Array.isArray(field.value) ? field.value.join(', ') : String(field.value);
}

function fit(text: string, width: number): string {
  const length = stripVTControlCharacters(text).length;
  return length > width ? `${text.slice(0, width - 1)}…` : text + ' '.repeat(width - length);
}

function say(line: string): void {
  process.stdout.write(`${styleText('dim', '›')} ${line}\n`);
}

if (isMain(import.meta.url)) await runScript(demo);
