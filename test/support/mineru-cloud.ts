import { BLOCKS, MARKDOWN, type Received, type Reply, type StandIn, startStandIn } from './mineru-server.ts';
import { zipOf } from './mineru-zip.ts';

export const CLOUD_KEY = 'cloud-key-1234567890';

export type CloudServer = StandIn & {
  /** The storage of the signed URLs, at another origin. */
  storage: StandIn;
  /** Changes what becomes of every batch from now on. */
  outcome: { state: string; errMsg: string; archive: Uint8Array };
};

/** An answer of the cloud that reports an error: always with status 200. */
export function cloudFailure(code: number | string): { answer: number; body: unknown } {
  const body =
    typeof code === 'string'
      ? { success: false, msgCode: code, msg: 'user authenticate failed', traceId: 't' }
      : { code, msg: `error ${code}`, trace_id: 't', data: null };
  return { answer: 200, body };
}

/** The cloud's v4: a batch waits for its file, then runs, then has an archive: one step a poll. */
export async function startCloudServer(): Promise<CloudServer> {
  const batches = new Map<string, { steps: string[]; name: string; uploaded: boolean }>();
  const outcome = {
    state: 'done',
    errMsg: '',
    archive: zipOf({
      'full.md': MARKDOWN,
      'images/0.jpg': 'a picture',
      'abc_content_list.json': JSON.stringify(BLOCKS),
      'abc_content_list_v2.json': '[]',
      'layout.json': '{}',
    }),
  };
  const storage = await startStandIn({
    'PUT /up/:id': ({ id, headers, url }: Received) => {
      const batch = batches.get(id);
      const signed = url.includes('Signature=');
      // The signature is over no Content-Type, and storages refuse two kinds of authority at once.
      if (batch === undefined || !signed || headers['content-type'] || headers.authorization) return { status: 403 };
      batch.uploaded = true;
      return {};
    },
    'GET /zip/:id': ({ headers }: Received) =>
      headers.authorization === undefined ? { bytes: outcome.archive } : { status: 403 },
  });
  const guarded = (handler: (request: Received) => Reply) => (request: Received) =>
    request.headers.authorization === `Bearer ${CLOUD_KEY}` ? handler(request) : { json: cloudFailure('A0202').body };
  const api: StandIn = await startStandIn({
    'POST /api/v4/file-urls/batch': guarded(({ body }) => {
      const { files } = JSON.parse(body.toString());
      const id = crypto.randomUUID();
      batches.set(id, { steps: ['pending', 'running', 'converting'], name: files[0].name, uploaded: false });
      const urls = [`${storage.url}/up/${id}?Expires=1&Signature=secret-signature`];
      return { json: { code: 0, msg: 'ok', trace_id: 't', data: { batch_id: id, file_urls: urls } } };
    }),
    'GET /api/v4/extract-results/batch/:id': guarded(({ id }) => {
      const batch = batches.get(id);
      if (batch === undefined) return { json: cloudFailure(-60012).body };
      const state = batch.uploaded ? (batch.steps.shift() ?? outcome.state) : 'waiting-file';
      const result: Record<string, unknown> = { file_name: batch.name, state, err_msg: '' };
      if (state === 'failed') result.err_msg = outcome.errMsg;
      if (state === 'done') result.full_zip_url = `${storage.url}/zip/${id}?Signature=secret-signature`;
      return { json: { code: 0, msg: 'ok', trace_id: 't', data: { batch_id: id, extract_result: [result] } } };
    }),
  });
  return {
    ...api,
    storage,
    outcome,
    parser: (options) => api.parser({ apiKey: CLOUD_KEY, ...options }),
    close: async () => {
      await api.close();
      await storage.close();
    },
  };
}
