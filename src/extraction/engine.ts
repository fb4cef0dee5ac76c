import type { TemplateField } from '../templates/template.ts';

/** What an engine is given: the bytes of one paper, and the fields to fill. */
export type ExtractionInput = {
  /** Whose paper it is: what is scarce is shared fairly between tasks. */
  taskId: string;
  content: Uint8Array;
  filename: string;
  /** As told by content when the document was stored. */
  mediaType: 'application/pdf' | 'text/plain' | 'text/markdown';
  fields: readonly TemplateField[];
  /** Fires when the attempt is given up: time is over, the claim was lost, the process stops. */
  signal: AbortSignal;
  /**
   * Stops the attempt's clock while it waits for something that is scarce (a thread, a permit, a server's pause), so that a
   * crowd before it does not use up its time.
   */
  whileWaiting<T>(wait: Promise<T>): Promise<T>;
};

/** A stretch of the paper's text: pages count from 1, offsets from 0 in UTF-16 units of that page's text. */
export type Place = { page: number; start: number; end: number };

/** A piece of the paper that may answer a field which nothing here may answer. */
export type Passage = Place & { text: string; score: number };

/** Another candidate that stands in the paper, such as a trial's number in a second register. */
export type Alternative = Place & { value: string };

export type FieldValue = {
  /** A string, number, boolean or list of strings, by the field's type; null unless `found` or `ungrounded`. */
  value: string | number | boolean | string[] | null;
  /**
   * - `found`         the value stands in the paper at the quote
   * - `not_reported`  a rule looked and the paper does not say; not an error
   * - `unanswered`    nothing here may answer this field: see `passages`
   * - `ungrounded`    a model gave the value, and the paper does not bear it out: its quote is not there (then page, start and
   *   end are null and the quote is the model's words), or the value does not follow from it
   */
  status: 'found' | 'not_reported' | 'unanswered' | 'ungrounded';
  /** The words of the paper that the value rests on, exactly as they stand in the page's text. */
  quote: string | null;
  page: number | null;
  start: number | null;
  end: number | null;
  /** Which rule, pattern or model gave the value, such as `rule:registration_number`. */
  method: string | null;
  /** 0 to 1; null where there is no value. */
  confidence: number | null;
  /** The best passages for a field without a value, best first. */
  passages?: Passage[];
  /** Other candidates for the value, best first; at most ten. */
  alternatives?: Alternative[];
  /** For a list whose entries stand in several places: where the entries outside of the quote stand. */
  evidence?: (Place & { text: string })[];
};

/** Tokens and pages that an attempt used; engines name what they count. */
export type Usage = Record<string, number>;

export type ExtractionOutput = {
  /** One entry for each field of the template, by its key. */
  data: Record<string, FieldValue>;
  usage?: Usage;
};

/**
 * Reads one paper and fills the fields of a template.
 *
 * `extract` throws an ExtractionError with a stable code and class; anything else it throws counts as transient. It must
 * end soon after `signal` fires.
 */
export type ExtractionEngine = {
  extract(input: ExtractionInput): Promise<ExtractionOutput>;
  close(): Promise<void>;
};
