import { expectId, expectObject, isObject, reasonIn, textIn } from './answers.ts';
import type { Conversion, Convert } from './dialect.ts';
import { badAnswer, parseError, statusError, TaskForgotten } from './failures.ts';
import type { HttpAnswer } from './http.ts';
import type { ParseOutput } from './parsed-document.ts';
import { pollUntil, TaskFailed } from './poll.ts';

/**
 * 3.x, the self-hosted `mineru-api`: `POST /tasks`, `GET /tasks/{id}`, `GET /tasks/{id}/result`.
 *
 * The URLs that the server tells for a task are not used: behind a proxy they name a host that only the server knows.
 * Tasks live in the server's memory, so a 404 means that it was restarted, or that the result's time was over.
 */
export const convertByTasks: Convert = async (conversion) => {
  const { http, signal } = conversion;
  const submitted = await http.send({ method: 'POST', url: 'tasks', body: parseForm(conversion) }, signal);
  if (submitted.status !== 202 && submitted.status !== 200) throw statusError(submitted, reasonIn(submitted));
  const taskId = expectId(expectObject(submitted), 'task_id');

  return await pollUntil(conversion, async () => {
    const answer = await http.send({ method: 'GET', url: `tasks/${taskId}` }, signal);
    if (answer.status === 404) throw new TaskForgotten();
    if (answer.status !== 200) throw statusError(answer, reasonIn(answer));
    const task = expectObject(answer);
    switch (task.status) {
      case 'pending':
      case 'processing':
        return undefined;
      case 'failed':
        throw new TaskFailed(parseError(textIn(task, 'error') ?? ''));
      case 'completed':
        return await fetchResult(conversion, taskId);
      default:
        throw badAnswer('a task status that is not known');
    }
  });
};

async function fetchResult({ http, signal }: Conversion, taskId: string): Promise<ParseOutput | undefined> {
  const answer = await http.send({ method: 'GET', url: `tasks/${taskId}/result` }, signal);
  if (answer.status === 202) return undefined;
  if (answer.status === 404) throw new TaskForgotten();
  if (answer.status === 409) throw new TaskFailed(parseError(reasonIn(answer)));
  if (answer.status !== 200) throw statusError(answer, reasonIn(answer));
  return outputIn(answer);
}

/** The form that 2.x and 3.x share; what is not set is left to the server's own default. */
export function parseForm({ content, uploadName, backend, language }: Conversion): FormData {
  const form = new FormData();
  form.append('files', new Blob([content], { type: 'application/pdf' }), uploadName);
  form.append('parse_method', 'auto');
  form.append('return_md', 'true');
  form.append('return_content_list', 'true');
  if (backend !== undefined) form.append('backend', backend);
  if (language !== undefined) form.append('lang_list', language);
  return form;
}

/**
 * The one document of a result. Its key is a stem that the server normalised, so the first value is taken.
 *
 * A missing `results` is a bad answer; an empty one, or an empty document, is left to `toParsedDocument` as a failure.
 */
export function outputIn(answer: HttpAnswer): ParseOutput {
  const body = expectObject(answer);
  if (!isObject(body.results)) throw badAnswer('a result without results');
  const document = Object.values(body.results).find(isObject) ?? {};
  return { markdown: document.md_content, contentList: document.content_list, version: textIn(body, 'version') };
}
