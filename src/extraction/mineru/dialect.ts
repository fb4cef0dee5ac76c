import type { Http } from './http.ts';
import type { ParseOutput } from './parsed-document.ts';

/** The API that a server speaks: `v2` and `v3` below the root, `v4` below `/v1`, `cloud` below `/api/v4`. */
export type DialectName = 'v2' | 'v3' | 'v4' | 'cloud';

/** One paper on its way through a server. */
export type Conversion = {
  http: Http;
  content: Uint8Array<ArrayBuffer>;
  /** A neutral name with the right ending: servers quote it in errors, and its words must not pass for the error's. */
  uploadName: string;
  /** `backend` in 2.x and 3.x, `tier` in 4.x, `model_version` in the cloud. */
  backend: string | undefined;
  language: string | undefined;
  pollIntervalMs: number;
  /** Fires when the caller gives up or the time for the whole paper is over. */
  signal: AbortSignal;
};

/**
 * Submits a paper and waits for its text.
 *
 * @throws ExtractionError; TaskForgotten where the server lost the paper on the way and submitting again may help
 */
export type Convert = (conversion: Conversion) => Promise<ParseOutput>;

/** A path of the cloud's API below the base URL, which may be given with or without `/api/v4`. */
export function cloudPath(base: URL, path: string): string {
  return base.pathname.endsWith('/api/v4/') ? path : `api/v4/${path}`;
}
