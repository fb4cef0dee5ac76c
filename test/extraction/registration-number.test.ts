import assert from 'node:assert/strict';
import { test } from 'node:test';
import { registrationNumber } from '../../src/extraction/rules/registration-number.ts';
import { field, find } from './support.ts';

const WRITTEN: [string, string][] = [
  ['ClinicalTrials.gov NCT01234567', 'NCT01234567'],
  ['ClinicalTrials.gov identifier: NCT 0123 4567.', 'NCT01234567'],
  ['Registered as NCT\u201101234567', 'NCT01234567'],
  ['https://clinicaltrials.gov/ct2/show/nct01234567', 'NCT01234567'],
  ['Current Controlled Trials ISRCTN 12345678', 'ISRCTN12345678'],
  ['Trial registration: ISRCTN number 12345678', 'ISRCTN12345678'],
  ['International Standard Randomised Controlled Trial Number (ISRCTN): 12345678', 'ISRCTN12345678'],
  ['EudraCT number: 2011\u2013000923\u201333', '2011-000923-33'],
  ['EU CT number 2022-500123-12-00', '2022-500123-12-00'],
  ['Australian New Zealand Clinical Trials Registry ACTRN12607000642482', 'ACTRN12607000642482'],
  ['Chinese Clinical Trial Registry ChiCTR-TRC-12345678', 'ChiCTR-TRC-12345678'],
  ['registered (ChiCTR2000012345)', 'ChiCTR2000012345'],
  ['German Clinical Trials Register DRKS00005111', 'DRKS00005111'],
  ['UMIN-CTR ID: UMIN000012148', 'UMIN000012148'],
  ['JapicCTI-123456', 'JapicCTI-123456'],
  ['registered in jRCT (jRCTs031180001)', 'jRCTs031180001'],
  ['Clinical Trials Registry of India CTRI/2012/08/002853', 'CTRI/2012/08/002853'],
  ['Iranian Registry of Clinical Trials IRCT2015072223284N1', 'IRCT2015072223284N1'],
  ['Dutch Trial Register NTR 1234', 'NTR1234'],
  ['Netherlands Trial Register NL7654', 'NL7654'],
  ['Pan African Clinical Trial Registry PACTR201505001141346', 'PACTR201505001141346'],
  ['CRIS KCT0001234', 'KCT0001234'],
  ['Thai Clinical Trials Registry TCTR20160429001', 'TCTR20160429001'],
  ['SLCTR/2012/003', 'SLCTR/2012/003'],
  ['ReBEC RBR-6kg7qz', 'RBR-6kg7qz'],
  ['registered (PER-012-20)', 'PER-012-20'],
  ['RPCEC00000123', 'RPCEC00000123'],
  ['LBCTR2020033424', 'LBCTR2020033424'],
  ['registered with the WHO, UTN U1111-1234-5678', 'U1111-1234-5678'],
];

for (const [text, value] of WRITTEN) {
  test(`"${text}" is read as ${value}`, () =>
    assert.equal(find(registrationNumber, `METHODS\n${text}.`)?.value, value));
}

const NONE = [
  'METHODS\nGrant number NCT0123456 and account 12345678.',
  'METHODS\nThe ethics committee approved it (2011-000923-33).',
  'METHODS\nExpression of NTR1 and NL63 cells.',
  'DISCUSSION\nAnother promising trial (NCT03051880) is under way.',
  'METHODS\nText.\nREFERENCES\n1. A trial. NCT01234567.',
];

for (const text of NONE) {
  test(`no number of its own in "${text.slice(0, 60)}"`, () => assert.equal(find(registrationNumber, text), undefined));
}

test("the trial's own number is preferred to others, which become alternatives", () => {
  const text = [
    'INTRODUCTION',
    'A previous trial (NCT00000001) found nothing.',
    'METHODS',
    'This trial was registered at ClinicalTrials.gov (NCT00000002) and as EudraCT 2011-000923-33.',
  ].join('\n');
  const found = find(registrationNumber, text);
  assert.equal(found?.value, 'NCT00000002');
  assert.deepEqual(
    found?.alternatives?.map(({ value }) => value),
    ['2011-000923-33', 'NCT00000001'],
  );
});

test('a field that names a register gets that register only', () => {
  const text = 'METHODS\nRegistered: NCT00000002, ISRCTN12345678.';
  assert.equal(find(registrationNumber, text, field('isrctn', 'text'))?.value, 'ISRCTN12345678');
  assert.equal(find(registrationNumber, text, field('nct_id', 'text'))?.value, 'NCT00000002');
});
