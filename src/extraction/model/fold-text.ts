/**
 * A text reduced to what a quote keeps however it is copied: lower-case letters and digits, the point inside a number, and
 * `<` and `>`. For each of its UTF-16 units, where the character stood that it comes from.
 */
export type FoldedText = { text: string; starts: Int32Array; ends: Int32Array };

const CITATION = /\[\s{0,3}\d{1,3}(?:\s{0,3}[,;\u2010-\u2015-]\s{0,3}\d{1,3}){0,20}\s{0,3}\\?\](?:\([^()\s]{0,300}\))?/;

/** A text without numeric citation marks in brackets: their figures are none of the text's. */
export function withoutCitations(text: string): string {
  return text.replace(new RegExp(CITATION, 'g'), ' ');
}

/** What is no word of a text: HTML tags, citation marks such as [3, 5–7], the target of a markdown link. */
const SKIPPED: Readonly<Record<string, RegExp>> = {
  '<': /<\/?[a-z][^<>]{0,200}>/iy,
  '[': new RegExp(CITATION, 'y'),
  ']': /\]\([^()\s]{0,300}\)/y,
};
const ENTITY = /&(lt|gt|le|ge|amp|nbsp|[nm]dash|quot);/iy;
const ENTITIES: Readonly<Record<string, string>> = { lt: '<', le: '<', gt: '>', ge: '>' };

/**
 * Folds a text, in one pass.
 *
 * Gone are white space, line breaks, hyphens and dashes, quotation marks and all other punctuation, markdown's marks, tags,
 * accents, case, the signs ™ ® ©, and numeric citation marks in brackets; ligatures are taken apart (NFKD); `≤` and `≥` count
 * as `<` and `>`, `·` inside a number as its point.
 */
export function foldText(text: string): FoldedText {
  const out = new Output(text.length);
  for (let at = 0; at < text.length; ) {
    const code = text.charCodeAt(at);
    if (isLetterOrDigit(code)) {
      out.add(code >= 65 && code <= 90 ? code + 32 : code, at, at + 1);
      at += 1;
    } else if (code < 128) {
      at += foldMark(text, at, code, out);
    } else {
      const point = text.codePointAt(at) ?? code;
      const length = point > 0xffff ? 2 : 1;
      // The Lancet's decimal point.
      const folded = code === 0xb7 || code === 0x2219 ? (isInNumber(text, at) ? '.' : '') : foldPoint(point);
      for (let index = 0; index < folded.length; index += 1) out.add(folded.charCodeAt(index), at, at + length);
      at += length;
    }
  }
  return out.done();
}

/** A mark of ASCII; how many characters it takes. */
function foldMark(text: string, at: number, code: number, out: Output): number {
  // Most marks are blanks.
  if (code === 32 || code === 10) return 1;
  const mark = text.charAt(at);
  const skipped = SKIPPED[mark];
  if (skipped !== undefined) {
    skipped.lastIndex = at;
    if (skipped.test(text)) return skipped.lastIndex - at;
  }
  if (mark === '&') {
    ENTITY.lastIndex = at;
    const name = ENTITY.exec(text)?.[1]?.toLowerCase();
    if (name === undefined) return 1;
    const length = name.length + 2;
    const meant = ENTITIES[name];
    if (meant !== undefined) out.add(meant.charCodeAt(0), at, at + length);
    return length;
  }
  if (mark === '<' || mark === '>' || (mark === '.' && isInNumber(text, at))) out.add(code, at, at + 1);
  return 1;
}

function isLetterOrDigit(code: number): boolean {
  return (code >= 97 && code <= 122) || (code >= 48 && code <= 57) || (code >= 65 && code <= 90);
}

function isInNumber(text: string, at: number): boolean {
  return isDigit(text.charCodeAt(at - 1)) && isDigit(text.charCodeAt(at + 1));
}

function isDigit(code: number): boolean {
  return code >= 48 && code <= 57;
}

const folds = new Map<number, string>();

function foldPoint(point: number): string {
  const known = folds.get(point);
  if (known !== undefined) return known;
  const folded = foldAnew(String.fromCodePoint(point));
  // Papers share their few hundred letters and signs; a text that runs through all of Unicode is not kept.
  if (folds.size < 4096) folds.set(point, folded);
  return folded;
}

function foldAnew(character: string): string {
  if (/[\u2264\u2266\u2a7d]/.test(character)) return '<';
  if (/[\u2265\u2267\u2a7e]/.test(character)) return '>';
  if (/[\u2120\u2122\u00a9\u00ae]/.test(character)) return '';
  return character
    .normalize('NFKD')
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, '');
}

/** Grows as it must: one character may become several. */
class Output {
  #codes: Uint16Array;
  #starts: Int32Array;
  #ends: Int32Array;
  #length = 0;

  constructor(length: number) {
    this.#codes = new Uint16Array(length + 16);
    this.#starts = new Int32Array(length + 16);
    this.#ends = new Int32Array(length + 16);
  }

  add(code: number, start: number, end: number): void {
    if (this.#length === this.#codes.length) this.#grow();
    this.#codes[this.#length] = code;
    this.#starts[this.#length] = start;
    this.#ends[this.#length] = end;
    this.#length += 1;
  }

  #grow(): void {
    const length = this.#length * 2;
    const [codes, starts, ends] = [new Uint16Array(length), new Int32Array(length), new Int32Array(length)];
    codes.set(this.#codes);
    starts.set(this.#starts);
    ends.set(this.#ends);
    [this.#codes, this.#starts, this.#ends] = [codes, starts, ends];
  }

  done(): FoldedText {
    const text = Buffer.from(this.#codes.buffer, 0, this.#length * 2).toString('utf16le');
    return { text, starts: this.#starts.subarray(0, this.#length), ends: this.#ends.subarray(0, this.#length) };
  }
}
