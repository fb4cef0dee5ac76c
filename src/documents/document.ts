/** A paper in the store, as the API shows it. */
export type Document = {
  documentId: string;
  projectId: string;
  filename: string;
  mediaType: MediaType;
  byteSize: number;
  sha256: string;
  createdAt: Date;
};

export type MediaType = 'application/pdf' | 'text/plain' | 'text/markdown';

/** How many bytes from its start tell what a file is: readers of PDF allow as much before the header. */
export const SNIFF_BYTES = 1024;

/**
 * What a file is: told by its content, else by its name. Nothing is refused here. A file that calls itself a PDF and is none,
 * and a kind that we do not read (stored as plain text), end as an error of their own result; they must not spoil an upload
 * of a hundred.
 */
export function detectMediaType(head: Buffer, filename: string): MediaType {
  if (head.subarray(0, SNIFF_BYTES).includes('%PDF-', 0, 'latin1')) return 'application/pdf';
  const extension = /\.([^.]+)$/.exec(filename)?.[1]?.toLowerCase();
  if (extension === 'pdf') return 'application/pdf';
  return extension === 'md' || extension === 'markdown' ? 'text/markdown' : 'text/plain';
}

const MAX_NAME = 255;

/**
 * A name that can be shown, stored and offered for saving: no path, no control or direction-changing characters, no half of
 * a surrogate pair, at most 255 characters (the extension is kept); `document` when nothing is left.
 */
export function cleanFilename(name: string): string {
  const base = name.slice(Math.max(name.lastIndexOf('/'), name.lastIndexOf('\\')) + 1);
  const clean = base
    .toWellFormed()
    .replaceAll(/[\p{Cc}\u2028-\u202e\u2066-\u2069]/gu, '')
    .trim();
  if (/^\.*$/.test(clean)) return 'document';
  if (clean.length <= MAX_NAME) return clean;
  const extension = /\.[^.]{1,15}$/.exec(clean)?.[0] ?? '';
  const stem = clean.slice(0, MAX_NAME - extension.length);
  // The cut may have gone through the middle of a pair.
  return (stem.isWellFormed() ? stem : stem.slice(0, -1)) + extension;
}
