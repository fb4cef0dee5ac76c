import { setImmediate as pause } from 'node:timers/promises';
import type { TemplateField } from '../../templates/template.ts';
import type { DocumentText } from '../document-text.ts';
import { findPassages } from '../passages.ts';
import { Outline } from '../sections.ts';
import { answerSchema } from './answer-schema.ts';
import type { Gate } from './endpoint.ts';
import { groundAnswer, type ModelFieldValue, unanswered } from './ground-answer.ts';
import { groupFields } from './group-fields.ts';
import { mergeValues } from './merge-values.ts';
import type { ModelClient } from './model-client.ts';
import { modelError, PromptTooLong, withUsage } from './model-error.ts';
import { MAX_PARTS, planParts } from './plan-parts.ts';
import { paperMessage, systemMessage } from './prompt.ts';
import { QuoteIndex } from './quote-index.ts';
import { type Answers, readAnswer } from './read-answer.ts';
import { estimateTokens } from './tokens.ts';
import { addUsage, type ModelUsage, noUsage } from './usage.ts';

/** A part of a paper that is smaller than this tells a model nothing. */
const MIN_PART_TOKENS = 400;
/** What stands around the paper in its message, and chat templates around that. */
const FRAME_TOKENS = 150;

export type ModelExtractionInput = {
  text: DocumentText;
  fields: readonly TemplateField[];
  client: ModelClient;
  signal: AbortSignal;
  /** For the calls of this paper, instead of the client's. */
  gate?: Gate | undefined;
};

export type ModelExtraction = { data: Record<string, ModelFieldValue>; usage: ModelUsage };

/**
 * Fills the fields of a template from a paper's text by a model, and holds every value against the text: see `groundAnswer`.
 *
 * A paper that is longer than the model's context is read in parts, and a template with very many fields in groups: see
 * `planParts`, `groupFields` and `mergeValues`. Where the server shows that its context is smaller than was thought, all is
 * planned anew with less, and the client remembers it: once where it says so, else (`prompt_truncated`) as often as the
 * parts can be halved.
 *
 * A field for which the model gives no value of its type, also when asked again, is `unanswered`, with the passages that
 * may answer it. The paper's text can't do more than that: what it makes the model say is read as values of these fields,
 * and a value that does not stand in the paper is marked.
 *
 * @throws ModelError, with the usage up to then: what `ModelClient.ask` throws; permanent `document_too_long`. The signal's
 *   reason when it fires
 */
export async function extractWithModel(input: ModelExtractionInput): Promise<ModelExtraction> {
  let usage = noUsage();
  let isShrunk = false;
  for (;;) {
    try {
      const answers = await askAll(input, (more) => {
        usage = addUsage(usage, more);
      });
      return { data: await toValues(input, answers), usage };
    } catch (error) {
      if (!(error instanceof PromptTooLong)) throw withUsage(error, usage);
      input.client.shrink(error);
      // Told once, it is known: a server that refuses again what it has asked for is not asked a third time.
      if (!error.isSilent && isShrunk) throw withUsage(error, usage);
      if (!fits(input)) throw withUsage(error, usage);
      isShrunk ||= !error.isSilent;
      usage = addUsage(usage, error.usage);
    }
  }
}

type Count = (usage: ModelUsage) => void;

/** The answers of each part to each group of fields, in the order of the parts. */
async function askAll(input: ModelExtractionInput, count: Count): Promise<Answers[]> {
  const { client, text, signal, gate } = input;
  const answers: Answers[] = [];
  const groups = groupFields(input.fields, client.limits).map((fields) => {
    const system = systemMessage(fields);
    return { fields, system, parts: planParts(text, partTokens(client, system)) };
  });
  if (groups.reduce((sum, { parts }) => sum + parts.length, 0) > MAX_PARTS) {
    throw modelError(
      'permanent',
      'document_too_long',
      `the document and its fields take more than ${MAX_PARTS} prompts`,
    );
  }
  for (const { fields, system, parts } of groups) {
    const schema = answerSchema(fields);
    for (const [index, part] of parts.entries()) {
      const user = paperMessage(part, { number: index + 1, of: parts.length });
      const read = (content: string) => readAnswer(content, fields);
      const { value, usage } = await client.ask({ system, user, schema, read, signal, gate });
      count(usage);
      answers.push(value);
    }
  }
  return answers;
}

function partTokens(client: ModelClient, system: string): number {
  const left = client.limits.promptTokens - estimateTokens(system) - FRAME_TOKENS;
  // Rather a prompt that is refused than none: whether it fits is the server's to say.
  return Math.max(MIN_PART_TOKENS, left);
}

/** Whether what is left for the paper is worth asking. */
function fits({ client, fields }: ModelExtractionInput): boolean {
  const [largest = 0] = groupFields(fields, client.limits)
    .map((group) => estimateTokens(systemMessage(group)))
    .sort((a, b) => b - a);
  return client.limits.promptTokens - largest - FRAME_TOKENS >= MIN_PART_TOKENS;
}

async function toValues({ text, fields, client }: ModelExtractionInput, answers: readonly Answers[]) {
  const { pages } = text;
  const method = `model:${client.model}`;
  const index = new QuoteIndex(pages);
  const locate = (quote: string) => index.locate(quote);
  const values = new Map<string, ModelFieldValue>();
  for (const field of fields) {
    // Two hundred quotes take a quarter of a second together: others get their turn in between.
    await pause();
    const given = answers.flatMap((part) => {
      const answer = part.get(field.key);
      return answer === undefined ? [] : [groundAnswer(pages, locate, field, answer, method)];
    });
    const value = mergeValues(given);
    if (value !== undefined) values.set(field.key, value);
  }
  const missing = fields.filter(({ key }) => !values.has(key));
  const passages = missing.length > 0 ? findPassages(text, new Outline(text), missing) : new Map();
  // Own properties only, in the template's order: a key may be called "constructor".
  return Object.fromEntries(
    fields.map(({ key }) => [key, values.get(key) ?? { ...unanswered(method), passages: passages.get(key) ?? [] }]),
  );
}
