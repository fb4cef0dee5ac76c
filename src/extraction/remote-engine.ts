import { createHash } from 'node:crypto';
import { ExtractionError } from '../errors.ts';
import type { DocumentText } from './document-text.ts';
import type { ExtractionEngine, ExtractionInput, ExtractionOutput, Usage } from './engine.ts';
import type { DocumentParser, ParserIdentity } from './mineru/parser.ts';
import { extractWithModel } from './model/extract-with-model.ts';
import type { ModelClient } from './model/model-client.ts';
import type { ModelUsage } from './model/usage.ts';
import type { ReadingPool } from './reading-pool.ts';

/** The right to use a scarce stage, counted over all processes. */
export type Gatekeeper = {
  withPermit<T>(
    stage: 'parse' | 'llm',
    options: Pick<ExtractionInput, 'taskId' | 'signal' | 'whileWaiting'>,
    call: (signal: AbortSignal, reportTokens: (tokens: number) => void) => Promise<T>,
  ): Promise<T>;
};

/** Texts that were parsed before, by content and parser. */
export type TextKeeper = {
  read(key: { sha256: string } & TextVersion): Promise<DocumentText | undefined>;
  keep(key: { sha256: string } & TextVersion, text: DocumentText): Promise<void>;
};
type TextVersion = { parser: string; version: string };

/** What a million tokens cost, in whatever currency the operator reckons in. */
export type ModelPrices = { input: number; output: number; cached: number };

export type RemoteEngineParts = {
  pool: ReadingPool;
  /** Reads PDFs; without one the pool does. */
  parser?: DocumentParser | undefined;
  /** Fills the fields; without one rules do. */
  model?: ModelClient | undefined;
  prices?: ModelPrices | undefined;
  gatekeeper: Gatekeeper;
  texts: TextKeeper;
};

/**
 * The engine for those who have a parser, a model, or both: text by the parser, values by the model, and each of the two by
 * the embedded engine where it is missing.
 *
 * A PDF is looked at by the embedded reader first: a broken, empty or locked one ends there and costs no permit. A parsed
 * text is kept and read again, so a retry after a model's failure never parses again, nor does another task.
 */
export function createRemoteEngine(parts: RemoteEngineParts): ExtractionEngine {
  const { pool, model } = parts;
  return {
    async extract(input) {
      const text = await readText(parts, input);
      if (model === undefined) return { data: await pool.fill(text, input.fields, input) };
      return await fillByModel(parts, model, input, text);
    },
    close: () => pool.close(),
  };
}

async function readText({ pool, parser, gatekeeper, texts }: RemoteEngineParts, input: ExtractionInput) {
  const look = pool.read(input, input);
  if (parser === undefined || input.mediaType !== 'application/pdf') return await look;
  // A scan is what a parser is for; every other fault that the reader finds is one for the parser too.
  await look.catch((error: unknown) => {
    if (!(error instanceof ExtractionError) || error.code !== 'needs_ocr') throw error;
  });
  const sha256 = createHash('sha256').update(input.content).digest('hex');
  const { name, version }: ParserIdentity = await parser.identify(input.signal);
  const key = { sha256, parser: name, version };
  const known = await texts.read(key);
  if (known !== undefined) return known;
  return await gatekeeper.withPermit('parse', input, async (signal) => {
    // Somebody else may have parsed the same bytes while this one waited.
    const meanwhile = await texts.read(key);
    if (meanwhile !== undefined) return meanwhile;
    const parsed = await parser.parse({ content: input.content, filename: input.filename, signal });
    await texts.keep(key, parsed);
    return parsed;
  });
}

async function fillByModel(
  { gatekeeper, prices }: RemoteEngineParts,
  client: ModelClient,
  input: ExtractionInput,
  text: DocumentText,
): Promise<ExtractionOutput> {
  const gate = <T>(call: () => Promise<T>): Promise<T> =>
    gatekeeper.withPermit('llm', input, async (_, reportTokens) => {
      const answer = await call();
      reportTokens(tokensOf(answer));
      return answer;
    });
  try {
    const { data, usage } = await extractWithModel({ text, fields: input.fields, client, signal: input.signal, gate });
    return { data, usage: priced({ ...usage }, prices) };
  } catch (error) {
    if (error instanceof ExtractionError && error.usage !== undefined) error.usage = priced({ ...error.usage }, prices);
    throw error;
  }
}

/** What an answer counts against the stage's budget of tokens: both ways, as providers reckon. A refusal counts nothing. */
function tokensOf(answer: unknown): number {
  const { usage } = (answer ?? {}) as { usage?: Partial<ModelUsage> };
  return (usage?.promptTokens ?? 0) + (usage?.completionTokens ?? 0);
}

/** Adds the cost, where prices are known. Cached tokens are a part of the prompt's and have a price of their own. */
function priced(usage: Usage, prices: ModelPrices | undefined): Usage {
  if (prices === undefined) return usage;
  const { promptTokens = 0, cachedTokens = 0, completionTokens = 0 } = usage;
  const fresh = Math.max(0, promptTokens - cachedTokens);
  const cost = (fresh * prices.input + cachedTokens * prices.cached + completionTokens * prices.output) / 1e6;
  return { ...usage, cost: Number(cost.toFixed(9)) };
}
