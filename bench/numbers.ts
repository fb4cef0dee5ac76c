/** The middle one; of an even number the upper of the two in the middle. */
export function median(values: readonly number[]): number {
  return percentile(values, 50);
}

/** The value that `percent` of all are not above. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * percent) / 100))] ?? Number.NaN;
}

/** Three digits that matter: 0.0123, 1.23, 12.3, 123, 1,230. */
export function round(value: number): string {
  if (!Number.isFinite(value)) return '-';
  return value.toLocaleString('en', { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
}

export function milliseconds(value: number): string {
  return Number.isFinite(value) ? `${round(value)} ms` : '-';
}

export function megabytes(bytes: number): string {
  return Number.isFinite(bytes) ? `${Math.round(bytes / 1_000_000)} MB` : '-';
}
