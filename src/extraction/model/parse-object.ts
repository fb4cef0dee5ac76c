/**
 * The JSON object in a model's answer: all of it, or what stands in a code fence or between words, behind its thinking.
 * Undefined where there is none. Nothing is mended: half an object is none.
 */
export function parseObject(content: string): Record<string, unknown> | undefined {
  const spoken = content.replace(/^\s*<think(?:ing)?>[\s\S]*?<\/think(?:ing)?>/i, '').trim();
  const fenced = /```(?:json)?\s*\n?([\s\S]*?)```/i.exec(spoken)?.[1];
  const from = spoken.indexOf('{');
  const to = spoken.lastIndexOf('}');
  for (const candidate of [spoken, fenced, from >= 0 && to > from ? spoken.slice(from, to + 1) : undefined]) {
    const value = candidate === undefined ? undefined : parse(candidate);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  }
  return undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
