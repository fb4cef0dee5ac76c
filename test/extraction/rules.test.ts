import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { blinding } from '../../src/extraction/rules/blinding.ts';
import { chooseRule } from '../../src/extraction/rules/choose-rule.ts';
import { doi } from '../../src/extraction/rules/doi.ts';
import { numberRandomised } from '../../src/extraction/rules/number-randomised.ts';
import { randomised } from '../../src/extraction/rules/randomised.ts';
import { title } from '../../src/extraction/rules/title.ts';
import type { TemplateField } from '../../src/templates/template.ts';
import { field, find } from './support.ts';

describe('number randomised', () => {
  const cases: [string, number | undefined][] = [
    ['A total of 1,234 patients were randomised.', 1234],
    ['We randomly assigned 240 women to aspirin or placebo.', 240],
    ['Sixty-two patients were randomized to A or B.', 62],
    ['One hundred and nine participants were randomised.', 109],
    ['120 eligible adults were recruited and randomly allocated to two groups.', 120],
    ['Randomised (n = 98)', 98],
    ['Of 300 patients screened, 88 underwent randomisation.', 88],
    ['After exclusion of 19 patients who did not meet the criteria, 73 patients were randomized.', 73],
    ['30 patients were randomised to the control group.', undefined],
    ['30 patients were randomised to aspirin and 31 to placebo.', undefined],
    ['A total of 270 patients will be randomised.', undefined],
    ['We enrolled 120 patients.', undefined],
    ['Patients aged 12.5 years were randomised.', undefined],
    ['A sample of at least 54 patients to be randomized was required.', undefined],
    ['23, 16 and 21 patients were randomized to A, B and C.', undefined],
  ];
  for (const [text, value] of cases) {
    test(`${value ?? 'no answer'} in "${text}"`, () =>
      assert.equal(find(numberRandomised, `RESULTS\n${text}`)?.value, value));
  }
});

describe('randomised', () => {
  const cases: [string, boolean | undefined][] = [
    ['Aspirin for headache: a randomised controlled trial\nABSTRACT\nText.', true],
    ['A title\nMETHODS\nPatients were randomly assigned to two groups.', true],
    ['A title\nABSTRACT\nThis was a non-randomised controlled study.', false],
    ['Aspirin: a systematic review of randomised controlled trials', undefined],
    ['A title\nDISCUSSION\nFurther randomised trials are needed.', undefined],
    ['A title\nMETHODS\nWe counted birds.', undefined],
  ];
  for (const [text, value] of cases) {
    test(`${value ?? 'no answer'} in "${text.replace(/\n/g, ' / ')}"`, () =>
      assert.equal(find(randomised, text)?.value, value));
  }
});

describe('blinding', () => {
  const cases: [string, string[] | undefined][] = [
    ['ABSTRACT\nA double\u2010blind trial.', ['double-blind']],
    ['ABSTRACT\nAn open label, assessor-blinded trial.', ['open-label', 'assessor-blind']],
    ['METHODS\nOutcome assessors were blinded to allocation.', ['assessor-blind']],
    ['METHODS\nThe code was unblinded at the end.', undefined],
    ['DISCUSSION\nDouble-blind trials are needed.', undefined],
  ];
  for (const [text, value] of cases) {
    test(`${value ?? 'no answer'} in "${text.replace(/\n/g, ' / ')}"`, () => {
      const found = find(blinding, text)?.value;
      assert.deepEqual(Array.isArray(found) ? found.sort() : found, value?.sort());
    });
  }
});

describe('title and DOI', () => {
  const titles: [string, string | undefined][] = [
    ['TITLE: Aspirin for  headache in adults\n\nABSTRACT\nText.', 'Aspirin for headache in adults'],
    ['# Aspirin for headache in adults\n\n## Abstract\n', 'Aspirin for headache in adults'],
    ['Aspirin for headache in adults\nJ Doe, A Roe\n', 'Aspirin for headache in adults'],
    ['# Abstract\n\nText of it.', undefined],
    ['doi: 10.1000/xyz123 and more words\n', undefined],
  ];
  for (const [text, value] of titles) {
    test(`title: ${value ?? 'none'} in "${text.slice(0, 30).trim()}"`, () =>
      assert.equal(find(title, text)?.value, value));
  }
  const dois: [string, string | undefined][] = [
    ['A title\ndoi:10.1136/bmj.h2145.', '10.1136/bmj.h2145'],
    ['A title (https://doi.org/10.1016/S0140-6736(18)31128-4)', '10.1016/S0140-6736(18)31128-4'],
    ['A title\n10.1371/journal.pone.0083427.t001', '10.1371/journal.pone.0083427'],
    ['A title\nREFERENCES\n1. Doe J. doi:10.1000/other', undefined],
    ['A title\nINTRODUCTION\nAs in Doe et al. 2015, doi:10.1000/other', undefined],
  ];
  for (const [text, value] of dois) {
    test(`DOI: ${value ?? 'none'} in "${text.slice(0, 50)}"`, () => assert.equal(find(doi, text)?.value, value));
  }
  test('a DOI on the last page counts where the publisher says "Cite this article as"', () => {
    const pages = ['A title', 'Text', 'More', 'REFERENCES\n1. x\ndoi:10.1186/1472-6963-14-1 Cite this article as: Doe'];
    assert.equal(find(doi, { pages, format: 'pdf' })?.value, '10.1186/1472-6963-14-1');
  });
});

describe('which rule answers which field', () => {
  const cases: [string, TemplateField['type'], string, string | undefined][] = [
    ['registration_number', 'text', 'Registration number', 'registration_number'],
    ['trialRegistration', 'text', 'Trial registration', 'registration_number'],
    ['nct_id', 'text', 'NCT ID', 'registration_number'],
    ['registry_id', 'text', 'Registry ID', 'registration_number'],
    ['q1', 'text', 'Trial registration number', 'registration_number'],
    ['registration_date', 'text', 'Registration', undefined],
    ['registration', 'boolean', 'Registered?', undefined],
    ['number_randomised', 'integer', 'Number randomised', 'number_randomised'],
    ['n_randomized', 'integer', 'N randomized', 'number_randomised'],
    ['participantsRandomised', 'number', 'Participants randomised', 'number_randomised'],
    ['number_randomised_per_arm', 'integer', 'Number randomised per arm', undefined],
    ['number_analysed', 'integer', 'Number analysed', undefined],
    ['sample_size', 'integer', 'Sample size', undefined],
    ['title', 'text', 'Title', 'title'],
    ['title_of_intervention', 'text', 'Title of intervention', undefined],
    ['title', 'text', 'Title of the intervention', undefined],
    ['doi', 'text', 'DOI', 'doi'],
    ['isRandomized', 'boolean', 'Is it randomized?', 'randomised'],
    ['randomised', 'text', 'Randomised', undefined],
    ['blinding', 'list', 'Blinding', 'blinding'],
    ['masking', 'list', 'Masking', 'blinding'],
    ['color_blindness', 'list', 'Colour blindness', undefined],
    ['primary_outcome', 'text', 'Primary outcome', undefined],
  ];
  for (const [key, type, label, rule] of cases) {
    test(`${key} (${type}, "${label}"): ${rule ?? 'passages'}`, () => {
      assert.equal(chooseRule(field(key, type, { label }))?.name, rule);
    });
  }
});
