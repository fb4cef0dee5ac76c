import type { TemplateField } from '../../templates/template.ts';
import type { ModelLimits } from './endpoint.ts';
import { fieldLine } from './prompt.ts';
import { estimateTokens } from './tokens.ts';

/** An answer of quote, value and status, in tokens. Quotes are up to 300 characters. */
const ANSWER_TOKENS = 110;
const LIST_ANSWER_TOKENS = 250;
/** OpenAI takes at most 1,000 enum values in a schema, the three of each field's status among them. */
const MAX_ENUM_VALUES = 600;
const MAX_FIELDS = 100;

/**
 * The fields to ask for together, in their order: as many as leave the answer room for twice its length, and the paper two
 * thirds of the prompt. Templates of the usual size are one group.
 */
export function groupFields(fields: readonly TemplateField[], limits: Readonly<ModelLimits>): TemplateField[][] {
  const groups: TemplateField[][] = [];
  let [answer, prompt, values] = [0, 0, 0];
  for (const field of fields) {
    answer += field.type === 'list' ? LIST_ANSWER_TOKENS : ANSWER_TOKENS;
    prompt += estimateTokens(fieldLine(field));
    values += field.enum?.length ?? 0;
    const group = groups.at(-1);
    const fits =
      answer <= limits.outputTokens / 2 &&
      prompt <= limits.promptTokens / 3 &&
      values <= MAX_ENUM_VALUES &&
      (group?.length ?? 0) < MAX_FIELDS;
    if (group !== undefined && fits) group.push(field);
    else {
      groups.push([field]);
      answer = field.type === 'list' ? LIST_ANSWER_TOKENS : ANSWER_TOKENS;
      prompt = estimateTokens(fieldLine(field));
      values = field.enum?.length ?? 0;
    }
  }
  return groups;
}
