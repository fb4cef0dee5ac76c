import { createHash } from 'node:crypto';
import { BLOCKS, MARKDOWN, type Received, type Reply, type StandIn, startStandIn } from './mineru-server.ts';

export type JobsServer = StandIn & {
  forget(): void;
  /** Changes how the server works from now on. */
  mode: {
    version: string;
    /** The key that all but the health needs. */
    key: string | undefined;
    /** Another place to upload to than its own route. */
    storage: string | undefined;
    status: string;
    error: unknown;
    formats: string[];
  };
};

/** The envelope of 4.x's errors. */
export function jobsFailure(status: number, error: Record<string, unknown>): { answer: number; body: unknown } {
  return { answer: status, body: { error: { type: 'api_error', message: 'it went wrong', param: null, ...error } } };
}

/** 4.x: uploads in three steps, jobs, and outputs as files. A job is queued, then running, then done: one step a poll. */
export async function startJobsServer(): Promise<JobsServer> {
  const uploads = new Map<string, { bytes: number; sha256sum: string; data?: Buffer }>();
  const files = new Map<string, Buffer>();
  const byHash = new Map<string, string>();
  const jobs = new Map<string, { steps: string[]; formats: string[] }>();
  const mode: JobsServer['mode'] = {
    version: '4.2.3',
    key: undefined,
    storage: undefined,
    status: 'completed',
    error: undefined,
    formats: ['markdown', 'middle_json', 'content_list', 'structured_content', 'zip'],
  };
  const failure = (status: number, code: string, message: string, type = 'invalid_request_error'): Reply => ({
    status,
    json: { error: { type, code, message, param: null, retryable: code === 'upload_not_ready', user_action: null } },
  });
  const store = (data: Buffer): string => {
    const id = `file-${crypto.randomUUID().replaceAll('-', '').slice(0, 24)}`;
    files.set(id, data);
    return id;
  };
  const guarded = (handler: (request: Received) => Reply) => (request: Received) =>
    mode.key !== undefined && request.headers.authorization !== `Bearer ${mode.key}`
      ? failure(401, 'invalid_api_key', 'Invalid or missing API key', 'authentication_error')
      : handler(request);

  const server: StandIn = await startStandIn({
    'GET /v1/health': () => ({
      json: { status: 'ok', version: mode.version, features: { webhook: false, output_formats: mode.formats } },
    }),
    'POST /v1/uploads': guarded(({ body }) => {
      const { bytes, sha256sum } = JSON.parse(body.toString());
      const known = byHash.get(sha256sum);
      const id = `upload_${crypto.randomUUID().replaceAll('-', '').slice(0, 24)}`;
      const upload = { id, object: 'upload', bytes, sha256sum };
      if (known !== undefined)
        return { json: { ...upload, status: 'completed', upload_url: null, file: { id: known } } };
      uploads.set(id, { bytes, sha256sum });
      return {
        json: {
          ...upload,
          status: 'pending',
          // Self-hosted servers name themselves as their proxy calls them.
          upload_url: mode.storage ?? `http://mineru.internal:8000/v1/uploads/${id}/content`,
          upload_method: 'PUT',
          upload_headers: { 'Content-Type': 'application/pdf', 'x-amz-content-sha256': sha256sum },
        },
      };
    }),
    'PUT /v1/uploads/:id/content': guarded(({ id, body }) => {
      const upload = uploads.get(id);
      if (upload === undefined) return failure(404, 'upload_not_found', 'No such upload');
      upload.data = body;
      return {};
    }),
    // What a storage of its own would be: no key, only a signature.
    'PUT /storage/:id': ({ body }) => {
      for (const upload of uploads.values()) upload.data = body;
      return {};
    },
    'GET /v1/uploads/:id': guarded(({ id }) => {
      const upload = uploads.get(id);
      if (upload === undefined) return failure(404, 'upload_not_found', 'No such upload');
      const known = byHash.get(upload.sha256sum);
      return { json: { id, status: known ? 'completed' : 'pending', ...(known ? { file: { id: known } } : {}) } };
    }),
    'POST /v1/uploads/:id/complete': guarded(({ id }) => {
      const upload = uploads.get(id);
      if (upload === undefined) return failure(404, 'upload_not_found', 'No such upload');
      if (upload.data === undefined) return failure(409, 'upload_not_ready', 'Bytes are not there yet');
      const hash = createHash('sha256').update(upload.data).digest('hex');
      if (byHash.has(hash)) return failure(409, 'upload_already_terminal', 'Upload is completed');
      if (upload.data.byteLength !== upload.bytes) return failure(400, 'bytes_mismatch', 'Other bytes than declared');
      if (hash !== upload.sha256sum) return failure(400, 'file_hash_mismatch', 'SHA-256 mismatch');
      const fileId = store(upload.data);
      byHash.set(hash, fileId);
      return { json: { id, object: 'upload', status: 'completed', upload_url: null, file: { id: fileId } } };
    }),
    'POST /v1/parse/jobs': guarded(({ body }) => {
      const request = JSON.parse(body.toString());
      if (!files.has(request.files[0].source.file_id)) return failure(404, 'file_not_found', 'No such file');
      const unknown = request.output_formats.find((format: string) => !mode.formats.includes(format));
      if (unknown) return failure(400, 'unsupported_output_format', `${unknown} is not supported`);
      const id = `job_${crypto.randomUUID().replaceAll('-', '').slice(0, 24)}`;
      jobs.set(id, { steps: ['queued', 'running'], formats: request.output_formats });
      return { status: 202, json: { job_id: id, status: 'queued', links: { self: `/v1/parse/jobs/${id}` } } };
    }),
    'GET /v1/parse/jobs/:id': guarded(({ id }) => {
      const job = jobs.get(id);
      if (job === undefined) return failure(404, 'job_not_found', 'No such job');
      const status = job.steps.shift() ?? mode.status;
      if (status === 'failed' || status === 'partial') {
        return { json: { job_id: id, status, files: [{ name: 'document.pdf', status: 'failed', error: mode.error }] } };
      }
      if (status !== 'completed') return { json: { job_id: id, status, files: [{ status }] } };
      const output: Record<string, { file_id: string }> = {};
      if (job.formats.includes('markdown')) output.markdown = { file_id: store(Buffer.from(MARKDOWN)) };
      // 4.x leaves out what has its default: the first page's `page_idx`.
      const blocks = BLOCKS.map(({ page_idx: page, ...block }) => (page === 0 ? block : { ...block, page_idx: page }));
      if (job.formats.includes('content_list')) {
        output.content_list = { file_id: store(Buffer.from(JSON.stringify(blocks))) };
      }
      const parse = { model_used: null, duration_ms: 8, parser_version: mode.version };
      return { json: { job_id: id, status, files: [{ status, parse, output_files: output }] } };
    }),
    'GET /v1/files/:id/content': guarded(({ id }) => {
      const data = files.get(id);
      return data === undefined ? failure(404, 'file_not_found', 'No such file') : { bytes: data };
    }),
  });
  const forget = () => {
    for (const map of [uploads, files, byHash, jobs]) map.clear();
  };
  return { ...server, mode, forget };
}
