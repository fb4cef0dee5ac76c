import { BLOCKS, MARKDOWN, type Received, type StandIn, startStandIn } from './mineru-server.ts';

export type TasksServer = StandIn & {
  /** Loses every task, as a restart does. */
  forget(): void;
  /** Changes what the server says of itself. */
  health: Record<string, unknown>;
  /** Changes what becomes of every task from now on. */
  outcome: { status: string; error: string | null; results: unknown };
};

/** 3.x: `mineru-api` with tasks in memory. A task is pending, then processing, then done: one step a poll. */
export async function startTasksServer(): Promise<TasksServer> {
  const tasks = new Map<string, string[]>();
  const health = { status: 'healthy', version: '3.4.4', protocol_version: 2 };
  const outcome = {
    status: 'completed',
    error: null as string | null,
    // The key is the stem as the server normalises it, and the list is a text.
    results: { document_1: { md_content: MARKDOWN, content_list: JSON.stringify(BLOCKS) } } as unknown,
  };
  const notFound = { status: 404, json: { detail: 'Task not found' } };
  const describe = (id: string, status: string) => ({
    task_id: id,
    status,
    backend: 'pipeline',
    file_names: ['document'],
    error: status === 'failed' ? outcome.error : null,
    // Behind a proxy a server names itself like this.
    status_url: `http://mineru.internal:8000/tasks/${id}`,
    result_url: `http://mineru.internal:8000/tasks/${id}/result`,
  });
  const server = await startStandIn({
    'GET /health': () => ({ json: health }),
    'POST /tasks': () => {
      const id = crypto.randomUUID();
      tasks.set(id, ['pending', 'processing']);
      return { status: 202, json: { ...describe(id, 'pending'), message: 'Task submitted successfully' } };
    },
    'POST /file_parse': () => ({ status: 500 }),
    'GET /tasks/:id': ({ id }: Received) => {
      const steps = tasks.get(id);
      if (steps === undefined) return notFound;
      return { json: describe(id, steps.shift() ?? outcome.status) };
    },
    'GET /tasks/:id/result': ({ id }: Received) => {
      if (!tasks.has(id)) return notFound;
      if (outcome.status === 'failed') {
        return { status: 409, json: { ...describe(id, 'failed'), message: 'Task execution failed' } };
      }
      return { json: { backend: 'pipeline', version: health.version, results: outcome.results } };
    },
  });
  return { ...server, health, outcome, forget: () => tasks.clear() };
}

/** 2.x: one synchronous route, nothing else. */
export async function startFileParseServer(): Promise<StandIn> {
  return await startStandIn({
    'POST /file_parse': () => ({
      json: {
        backend: 'pipeline',
        version: '2.7.6',
        results: { document: { md_content: MARKDOWN, content_list: JSON.stringify(BLOCKS) } },
      },
    }),
  });
}
