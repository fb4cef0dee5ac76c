import { fileURLToPath } from 'node:url';
import { Piscina } from 'piscina';
import { type ErrorClass, ExtractionError, permanent } from '../errors.ts';
import type { TemplateField } from '../templates/template.ts';
import type { DocumentText } from './document-text.ts';
import type { EmbeddedAnswer, EmbeddedResult, EmbeddedTask } from './embedded-worker.ts';
import type { ExtractionInput, FieldValue } from './engine.ts';
import { createSemaphore } from './semaphore.ts';

export type ReadingPoolOptions = {
  /** Papers worked on at the same time; more than that wait their turn. */
  threads: number;
  /** JavaScript heap of one thread in megabytes. A paper that needs more is `document_too_complex`. Default 1024. */
  threadMemoryMegabytes?: number;
  /** The longest that one paper may keep a thread; a paper that needs more is `document_too_complex`. Default 5 minutes. */
  paperTimeoutMs?: number;
  /** An idle thread gives its memory back after this time. Default one minute. */
  idleTimeoutMs?: number;
};

type Attempt = Pick<ExtractionInput, 'signal' | 'whileWaiting'>;

/** Threads that read papers and apply rules to them. */
export type ReadingPool = {
  /** The text of a paper. The caller's buffer is copied and stays as it is. */
  read(paper: Pick<ExtractionInput, 'content' | 'mediaType'>, attempt: Attempt): Promise<DocumentText>;
  /** What rules and patterns answer in a text, and passages for the rest. */
  fill(text: DocumentText, fields: readonly TemplateField[], attempt: Attempt): Promise<Record<string, FieldValue>>;
  /** Both in one go, without the text's way between the threads. */
  readAndFill(
    paper: Pick<ExtractionInput, 'content' | 'mediaType' | 'fields'>,
    attempt: Attempt,
  ): Promise<{ data: Record<string, FieldValue>; pages: number; characters: number }>;
  close(): Promise<void>;
};

/**
 * Starts a pool of worker threads. All that costs time is done there, so the caller's event loop keeps its rhythm; a paper
 * that exhausts a thread's memory or crashes it takes nothing else with it.
 *
 * Everything throws ExtractionErrors: permanent ones of the readers, `document_too_complex`, and transient `thread_failed`.
 * When the signal fires the thread is stopped and the signal's reason is thrown.
 */
export function createReadingPool(options: ReadingPoolOptions): ReadingPool {
  const { threads, paperTimeoutMs = 300_000 } = options;
  // The pool has a queue too, but does not say when a task leaves it: waiting must not count as reading.
  const turns = createSemaphore(threads);
  const pool = new Piscina<EmbeddedTask, EmbeddedResult>({
    filename: WORKER_FILE,
    minThreads: 0,
    maxThreads: threads,
    idleTimeout: options.idleTimeoutMs ?? 60_000,
    concurrentTasksPerWorker: 1,
    // The default would keep a thread from ending its own asynchronous work while it waits for the next paper.
    atomics: 'disabled',
    execArgv: WORKER_ARGUMENTS,
    resourceLimits: { maxOldGenerationSizeMb: options.threadMemoryMegabytes ?? 1024 },
  });
  // A thread that dies between two papers is replaced by the pool; without a listener it would end the process.
  pool.on('error', () => {});

  /** `makeTask` is called when it is its turn: a copy of the paper is made no earlier. */
  const run = async (makeTask: () => EmbeddedTask, { signal, whileWaiting }: Attempt): Promise<EmbeddedAnswer> => {
    const leave = await whileWaiting(turns.enter(signal));
    const timeout = AbortSignal.timeout(paperTimeoutMs);
    let result: EmbeddedResult;
    try {
      result = await pool.run(makeTask(), { signal: AbortSignal.any([signal, timeout]) });
    } catch (error) {
      signal.throwIfAborted();
      if (timeout.aborted) {
        const message = `reading the document takes longer than ${paperTimeoutMs / 1000} s`;
        throw permanent('document_too_complex', message, error);
      }
      throw threadError(error);
    } finally {
      leave();
    }
    if (!result.ok) throw new ExtractionError(result.errorClass, result.code, result.message);
    return result.answer;
  };

  return {
    async read({ content, mediaType }, attempt) {
      const answer = await run(() => ({ kind: 'read', content: ownBuffer(content), mediaType }), attempt);
      return answer.text as DocumentText;
    },
    async fill(text, fields, attempt) {
      const answer = await run(() => ({ kind: 'fill', text, fields: [...fields] }), attempt);
      return answer.data as Record<string, FieldValue>;
    },
    async readAndFill({ content, mediaType, fields }, attempt) {
      const answer = await run(
        () => ({ kind: 'readAndFill', content: ownBuffer(content), mediaType, fields: [...fields] }),
        attempt,
      );
      const { data = {}, pages = 0, characters = 0 } = answer;
      return { data, pages, characters };
    },
    close: () => pool.destroy(),
  };
}

/** The worker stands beside this file, with the same ending: TypeScript in a checkout, JavaScript if it is ever built. */
const ENDING = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
const WORKER_FILE = fileURLToPath(new URL(`./embedded-worker.${ENDING}`, import.meta.url));
/** Said here rather than inherited, so that it does not matter how the process was started. */
const WORKER_ARGUMENTS = ENDING === 'ts' ? ['--import', import.meta.resolve('tsx')] : [];

/** Posting a view copies all of the buffer under it, and a database driver's buffer may be far larger than the paper. */
function ownBuffer(content: Uint8Array): Uint8Array {
  return content.byteLength === content.buffer.byteLength ? content : new Uint8Array(content);
}

function threadError(error: unknown): ExtractionError {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === 'ERR_WORKER_OUT_OF_MEMORY') {
    return permanent('document_too_complex', 'reading the document takes more memory than a thread has', error);
  }
  const errorClass: ErrorClass = 'transient';
  const message = error instanceof Error ? error.message : String(error);
  return new ExtractionError(errorClass, 'thread_failed', message, { cause: error });
}
