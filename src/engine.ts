import type { Config } from './config.ts';
import type { Sql } from './db.ts';
import { keepParsedText, readParsedText } from './documents/parsed-text-store.ts';
import { createEmbeddedEngine } from './extraction/embedded-engine.ts';
import type { ExtractionEngine } from './extraction/engine.ts';
import { createMinerUParser } from './extraction/mineru/parser.ts';
import { createModelClient } from './extraction/model/model-client.ts';
import { createReadingPool } from './extraction/reading-pool.ts';
import { createRemoteEngine, type Gatekeeper } from './extraction/remote-engine.ts';

/** The engine that the configuration asks for: the embedded one alone, or with a parser, a model or both in its place. */
export function createEngine(
  config: Pick<Config, 'engineThreads' | 'mineru' | 'model'>,
  parts: { sql: Sql; gatekeeper: Gatekeeper },
): ExtractionEngine {
  const { mineru, model, engineThreads: threads } = config;
  if (mineru === undefined && model === undefined) return createEmbeddedEngine({ threads });
  const { sql, gatekeeper } = parts;
  return createRemoteEngine({
    pool: createReadingPool({ threads }),
    parser: mineru === undefined ? undefined : createMinerUParser(mineru),
    model: model === undefined ? undefined : createModelClient(model),
    prices: model?.prices,
    gatekeeper,
    texts: {
      read: (key) => readParsedText(sql, key),
      keep: (key, text) => keepParsedText(sql, key, text),
    },
  });
}
