import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import type { Progress, TaskResult } from '../../src/tasks/task.ts';
import { until } from './waiting.ts';

/** A client of the API over HTTP, as a user's would be; every answer but a good one is thrown. */
export function client(url: string) {
  const call = async <T>(method: string, path: string, body?: FormData | object): Promise<T> => {
    const init: RequestInit = { method };
    if (body instanceof FormData) init.body = body;
    else if (body !== undefined) {
      init.body = JSON.stringify(body);
      init.headers = { 'content-type': 'application/json' };
    }
    const response = await fetch(url + path, init);
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return JSON.parse(text) as T;
  };
  return {
    call,
    /** Uploads files in one request; answers their document ids in the same order. */
    async upload(projectId: string, paths: readonly string[]): Promise<string[]> {
      const form = new FormData();
      form.append('projectId', projectId);
      for (const path of paths) form.append('files', new Blob([await readFile(path)]), basename(path));
      const { data } = await call<{ data: { documentId: string }[] }>('POST', '/documents', form);
      return data.map((document) => document.documentId);
    },
    async createTask(projectId: string, templateId: string, documentIds: readonly string[]): Promise<string> {
      const { taskId } = await call<{ taskId: string }>('POST', '/tasks', { projectId, templateId, documentIds });
      return taskId;
    },
    status: (taskId: string) => call<{ status: string; progress: Progress }>('GET', `/tasks/${taskId}/status`),
    /** Waits until the task is closed. */
    async closed(taskId: string, timeoutMs = 60_000): Promise<Progress> {
      return await until(
        `task ${taskId} closed`,
        async () => {
          const { status, progress } = await this.status(taskId);
          return status === 'processing' ? undefined : progress;
        },
        timeoutMs,
      );
    },
    /** All results, page by page, in the order of the request. */
    async results(taskId: string): Promise<TaskResult[]> {
      const all: TaskResult[] = [];
      let cursor: string | null = '';
      while (cursor !== null) {
        const page: { data: TaskResult[]; nextCursor: string | null } = await call(
          'GET',
          `/tasks/${taskId}/results?limit=50${cursor === '' ? '' : `&cursor=${cursor}`}`,
        );
        all.push(...page.data);
        cursor = page.nextCursor;
      }
      return all;
    },
  };
}
