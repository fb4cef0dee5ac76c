import type { ExtractionEngine } from './engine.ts';
import { createReadingPool, type ReadingPoolOptions } from './reading-pool.ts';

/**
 * The engine that needs no server and no model: it reads the PDF itself, answers by rules and patterns, and gives passages
 * for what rules cannot answer. It never gives a value that does not stand in the paper.
 *
 * `extract` throws what the pool of threads throws: permanent `document_empty`, `pdf_invalid`, `pdf_password`, `needs_ocr`,
 * `text_undecodable`, `document_too_complex`, `pattern_invalid`, `pattern_too_slow`, and transient `thread_failed`.
 */
export function createEmbeddedEngine(options: ReadingPoolOptions): ExtractionEngine {
  const pool = createReadingPool(options);
  return {
    async extract(input) {
      const { data, pages, characters } = await pool.readAndFill(input, input);
      return { data, usage: { pages, characters } };
    },
    close: () => pool.close(),
  };
}
