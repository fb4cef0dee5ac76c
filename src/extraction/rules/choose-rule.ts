import type { FieldType, TemplateField } from '../../templates/template.ts';
import { blinding } from './blinding.ts';
import { doi } from './doi.ts';
import { fieldWords } from './field-words.ts';
import { numberRandomised } from './number-randomised.ts';
import { randomised } from './randomised.ts';
import { registrationNumber } from './registration-number.ts';
import type { Rule } from './rule.ts';
import { title } from './title.ts';

/**
 * Which rule may answer which field.
 *
 * A rule answers a field when the type is one of its types, the key or the label is made of a set of words in `asks`
 * (all words of one entry), and neither key nor label has a word outside of `words`. So "title" is answered and "title of
 * intervention" is not, "registration number" is and "registration date" is not. Spellings are one (see `fieldWords`).
 */
const RULES: readonly { rule: Rule; types: readonly FieldType[]; asks: readonly string[]; words: string }[] = [
  {
    rule: registrationNumber,
    types: ['text'],
    asks: [
      'registration',
      'registry number',
      'registry id',
      'registry identifier',
      'register number',
      'trial registry',
      'trial identifier',
      'trial id',
      'clinicaltrials',
      'clinical trials gov',
      'nct',
      'isrctn',
      'eudract',
      'actrn',
      'chictr',
      'drks',
      'umin',
      'ctri',
      'irct',
      'pactr',
    ],
    words: `registration registry registered register trial trials clinical clinicaltrials gov study number no num id identifier
      code nct isrctn eudract actrn chictr drks umin ctri irct pactr`,
  },
  {
    rule: numberRandomised,
    types: ['integer', 'number'],
    asks: [
      'number randomized',
      'n randomized',
      'participants randomized',
      'patients randomized',
      'many randomized',
      'people randomized',
      'subjects randomized',
      'total randomized',
      'randomized n',
      'sample size randomized',
      'count randomized',
      'num randomized',
    ],
    words: `number num n no count total overall all how many participants participant patients patient people persons subjects
      individuals randomized randomised were was sample size trial study`,
  },
  {
    rule: title,
    types: ['text'],
    asks: ['title'],
    words: 'title article paper publication document study trial full main name report',
  },
  {
    rule: doi,
    types: ['text'],
    asks: ['doi', 'digital object identifier'],
    words: 'doi digital object identifier article paper publication document number id',
  },
  {
    rule: randomised,
    types: ['boolean'],
    asks: ['randomized', 'rct'],
    words:
      'randomized rct is was were it study trial controlled clinical design participants patients or not allocation',
  },
  {
    rule: blinding,
    types: ['list', 'text', 'enum'],
    asks: ['blinding', 'blinded', 'blind', 'masking', 'masked'],
    words:
      'blinding blinded blind masking masked or type types of level kind words description study trial method methods status design',
  },
];

/** Words that mean nothing by themselves. */
const FILLERS = new Set('the a an of for in by this s and'.split(' '));

/** The rule that may answer a field; undefined where none does, and the field gets passages. */
export function chooseRule(field: TemplateField): Rule | undefined {
  const names = [fieldWords(field.key), fieldWords(field.label)].filter((words) => words.some(isWord));
  return RULES.find(({ types, asks, words }) => {
    const known = new Set(words.split(/\s+/));
    return (
      types.includes(field.type) &&
      names.every((name) => name.every((word) => known.has(word) || FILLERS.has(word))) &&
      names.some((name) => asks.some((ask) => ask.split(' ').every((word) => name.includes(word))))
    );
  })?.rule;
}

/** Keys such as `field_3`, `q1` or `f12` say nothing, and must not stand in the way of the label. */
function isWord(word: string): boolean {
  return !/^(?:\d+|[a-z]\d+|field|item|column|question|q|f)$/.test(word) || word === 'n';
}
