/** One trial register: how its numbers are written in papers, and how they are written properly. */
export type Registry = {
  name: string;
  /** Global and case-insensitive. Every repetition is bounded, so the cost grows with the text alone. */
  pattern: RegExp;
  /** The number as the register writes it, or undefined where the match is not one. */
  normalise(match: RegExpExecArray): string | undefined;
  /** What has to stand within 120 characters before, where the number alone could be something else. */
  cue?: RegExp;
  /** Added to the score: a number that many trials carry beside their main one counts less. */
  weight?: number;
};

/** Blanks, any kind of dash and the like that printing puts into numbers. */
const GAP = '[)\\s:#._\\u2010-\\u2015\\u2212-]{0,3}';
/** Between the register's name and the digits there may be a word. */
const WORD =
  '(?:\\s{0,2}[(:,]?\\s{0,2}(?:trial\\s|registration\\s)?(?:number|no\\.?|id|identifier|registry|register)\\b)?';

function digits(count: string): string {
  return `(\\d(?:[\\s\\u2010-\\u2015-]?\\d){${count}})(?![\\d])`;
}

/** A register whose numbers are its name and so many digits. */
function plain(name: string, letters: string, count: string, more: Partial<Registry> = {}): Registry {
  return {
    name,
    pattern: new RegExp(`(?<![a-z0-9])${letters}${WORD}${GAP}\\(?${digits(count)}`, 'gi'),
    normalise: (match) => name + onlyDigits(match[1]),
    ...more,
  };
}

function onlyDigits(text: string | undefined): string {
  return text?.replace(/\D/g, '') ?? '';
}

const REGISTER_WORDS = /regist|trial|identifier/i;

export const REGISTRIES: readonly Registry[] = [
  plain('NCT', 'NCT', '7'),
  plain('ISRCTN', 'ISRCTN', '7'),
  plain('ACTRN', 'ACTRN', '13,14'),
  plain('DRKS', 'DRKS', '7'),
  plain('UMIN', 'UMIN(?:-?CTR)?', '8'),
  plain('KCT', 'KCT', '6'),
  plain('PACTR', 'PACTR', '14,15'),
  plain('TCTR', 'TCTR', '10'),
  plain('LBCTR', 'LBCTR', '9'),
  plain('RPCEC', 'RPCEC', '7'),
  plain('ITMCTR', 'ITMCTR', '9'),
  plain('NTR', 'NTR', '1,4', { cue: REGISTER_WORDS }),
  plain('NL', 'NL', '2,5', { cue: /trial(?:s)? (?:regist|code|number|id)|NTR|LTR/i }),
  {
    name: 'ChiCTR',
    pattern: new RegExp(`(?<![a-z0-9])ChiCTR${WORD}${GAP}((?:[A-Z]{2,6})?)${GAP}${digits('7,11')}`, 'gi'),
    normalise: (match) =>
      ['ChiCTR', match[1]?.toUpperCase(), onlyDigits(match[2])]
        .filter(Boolean)
        .join('-')
        .replace(/^ChiCTR-(?=\d)/, 'ChiCTR'),
  },
  {
    name: 'JapicCTI',
    pattern: /(?<![a-z0-9])JapicCTI[\s\u2010-\u2015-]{0,2}(\d{6})(?!\d)/gi,
    normalise: (match) => `JapicCTI-${match[1]}`,
  },
  {
    name: 'JMA',
    pattern: /(?<![a-z0-9])JMA[\s\u2010-\u2015-]{0,2}IIA[\s\u2010-\u2015-]{0,2}(\d{5})(?!\d)/gi,
    normalise: (match) => `JMA-IIA${match[1]}`,
  },
  {
    name: 'jRCT',
    pattern: /(?<![a-z0-9])jRCT[\s\u2010-\u2015-]{0,2}(s?)[\s-]?(\d{9,10})(?!\d)/gi,
    normalise: (match) => `jRCT${match[1]?.toLowerCase()}${match[2]}`,
  },
  {
    name: 'CTRI',
    pattern: /(?<![a-z0-9])CTRI[\s:.\u2010-\u2015-]{0,2}\/?\s?(20\d\d)\s?\/\s?(\d{1,3})\s?\/\s?(\d{4,6})(?!\d)/gi,
    normalise: (match) => `CTRI/${match[1]}/${match[2]}/${match[3]}`,
  },
  {
    name: 'IRCT',
    pattern: new RegExp(`(?<![a-z0-9])IRCT${WORD}${GAP}(\\d{8,16})\\s?N\\s?(\\d{1,3})(?!\\d)`, 'gi'),
    normalise: (match) => `IRCT${match[1]}N${match[2]}`,
  },
  {
    name: 'SLCTR',
    pattern: /(?<![a-z0-9])SLCTR\s?[/\u2010-\u2015-]\s?(20\d\d)\s?[/\u2010-\u2015-]\s?(\d{3})(?!\d)/gi,
    normalise: (match) => `SLCTR/${match[1]}/${match[2]}`,
  },
  {
    name: 'RBR',
    pattern: /(?<![a-z0-9])RBR\s?[\u2010-\u2015-]\s?([0-9a-z]{6,8})(?![0-9a-z])/gi,
    normalise: (match) => (/\d/.test(match[1] ?? '') ? `RBR-${match[1]?.toLowerCase()}` : undefined),
  },
  {
    name: 'PER',
    pattern: /(?<![a-z0-9])PER\s?[\u2010-\u2015-]\s?(\d{3})\s?[\u2010-\u2015-]\s?(\d\d)(?!\d)/gi,
    normalise: (match) => `PER-${match[1]}-${match[2]}`,
    cue: REGISTER_WORDS,
  },
  {
    // EudraCT and its successor in CTIS have the same shape; the successor may carry a version at the end.
    name: 'EudraCT',
    pattern:
      /(?<![\d\u2010-\u2015-])((?:19|20)\d\d)\s?[\u2010-\u2015-]\s?(\d{6})\s?[\u2010-\u2015-]\s?(\d\d)(?:[\u2010-\u2015-](\d\d))?(?!\d)/g,
    normalise: (match) => match.slice(1, 5).filter(Boolean).join('-'),
    cue: /eudra|\bEU[\s-]{0,2}(?:CT|trial|clinical)|CTIS|european (?:clinical|union|medicines)/i,
    weight: -1,
  },
  {
    // The WHO's universal number is given before a trial is registered anywhere: the last choice.
    name: 'UTN',
    pattern: /(?<![a-z0-9])(U1111)\s?[\u2010-\u2015-]\s?(\d{4})\s?[\u2010-\u2015-]\s?(\d{4})(?!\d)/gi,
    normalise: (match) => `U1111-${match[2]}-${match[3]}`,
    weight: -3,
  },
];
