import type { TaskResult } from '../tasks/task.ts';

/** Results as lines, one JSON object each, as the list of results has it. JSON escapes line ends, so a line is a result. */
export function toNdjson(results: readonly TaskResult[]): string {
  return results.map((result) => `${JSON.stringify(result)}\n`).join('');
}
