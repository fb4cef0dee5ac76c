/** What a model was asked and paid for. `requests` counts every HTTP request, also those that failed. */
export type ModelUsage = {
  promptTokens: number;
  completionTokens: number;
  /** The part of `promptTokens` that the server had in its cache. */
  cachedTokens: number;
  /** The part of `completionTokens` that nobody reads. */
  reasoningTokens: number;
  requests: number;
};

export function noUsage(): ModelUsage {
  return { promptTokens: 0, completionTokens: 0, cachedTokens: 0, reasoningTokens: 0, requests: 0 };
}

export function addUsage(a: ModelUsage, b: ModelUsage): ModelUsage {
  return {
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
    cachedTokens: a.cachedTokens + b.cachedTokens,
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
    requests: a.requests + b.requests,
  };
}

/** The `usage` of a reply, in which every part may be missing; for one request. */
export function readUsage(raw: unknown): ModelUsage {
  return {
    promptTokens: countAt(raw, 'prompt_tokens'),
    completionTokens: countAt(raw, 'completion_tokens'),
    // DeepSeek counts its cache beside the details.
    cachedTokens: countAt(raw, 'prompt_tokens_details', 'cached_tokens') || countAt(raw, 'prompt_cache_hit_tokens'),
    reasoningTokens: countAt(raw, 'completion_tokens_details', 'reasoning_tokens'),
    requests: 1,
  };
}

function countAt(raw: unknown, ...path: string[]): number {
  let value = raw;
  for (const key of path) {
    value = typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined;
  }
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;
}
