import { STATUS_CODES } from 'node:http';
import { HTTPException } from 'hono/http-exception';
import { isDatabaseAway, isRefusedValue } from '../db.ts';

/** One bad field: where it stands (`fields[2].key`, a query parameter, a header) and what is wrong with it. */
export type Fault = { path: string; message: string };

export type ProblemOptions = {
  errors?: readonly Fault[] | undefined;
  headers?: Record<string, string> | undefined;
  cause?: unknown;
};

/** An answer other than success, as RFC 9457 has it. `code` is stable and for programs, `message` is the detail for people. */
export class Problem extends Error {
  override readonly name = 'Problem';
  readonly status: number;
  readonly code: string;
  readonly errors: readonly Fault[] | undefined;
  readonly headers: Record<string, string>;

  constructor(status: number, code: string, detail: string, options: ProblemOptions = {}) {
    super(detail, { cause: options.cause });
    this.status = status;
    this.code = code;
    this.errors = options.errors;
    this.headers = options.headers ?? {};
  }

  /** The problem as `application/problem+json`. */
  toResponse(): Response {
    const body = {
      type: 'about:blank',
      title: STATUS_CODES[this.status] ?? 'Error',
      status: this.status,
      code: this.code,
      detail: this.message,
      ...(this.errors === undefined ? {} : { errors: this.errors }),
    };
    return new Response(JSON.stringify(body), {
      status: this.status,
      headers: { 'Content-Type': 'application/problem+json', ...this.headers },
    });
  }
}

/** A request of the right kind with wrong values: every fault with its path. */
export function invalidRequest(errors: readonly Fault[]): Problem {
  // A hundred thousand wrong ids are said in a hundred lines; the rest is of no use to anybody.
  const shown = errors.slice(0, 100);
  const more = errors.length > shown.length ? `; the first ${shown.length} are named` : '';
  const detail = `the request has ${errors.length} ${errors.length === 1 ? 'fault' : 'faults'}${more}`;
  return new Problem(400, 'invalid_request', detail, { errors: shown });
}

export function notFound(kind: 'task' | 'result' | 'document' | 'template', id: string): Problem {
  return new Problem(404, `${kind}_not_found`, `no ${kind} has the id ${id}`);
}

/** Any error as the problem to answer with. What a client cannot mend is told without details. */
export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof HTTPException) {
    const title = STATUS_CODES[error.status] ?? 'error';
    return new Problem(error.status, title.toLowerCase().replaceAll(/\W+/g, '_'), title, { cause: error });
  }
  if (isDatabaseAway(error)) {
    return new Problem(503, 'database_unavailable', 'the database is not reachable at the moment; try again', {
      headers: { 'Retry-After': '5' },
      cause: error,
    });
  }
  if (isRefusedValue(error)) {
    return new Problem(400, 'refused_value', 'the database cannot hold a value of this request', { cause: error });
  }
  return new Problem(500, 'internal_error', 'something went wrong on our side', { cause: error });
}
