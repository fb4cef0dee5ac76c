-- migrate:up

-- The built-in template, so that the first task needs no template of its own: what a systematic review asks of a report of
-- a randomised trial. Its id is fixed, so that examples can name it. The descriptions are also the words by which the
-- passages of a paper are found.
insert into asl_schema.template (id, name, version, description, fields)
values (
  '01939f00-0000-7000-8000-000000000001',
  'randomised-trial',
  1,
  'What a systematic review records of the report of a randomised controlled trial.',
  $fields$[
    {
      "key": "title", "label": "Title", "type": "text", "required": true,
      "description": "The title of the article, as printed at the head of its first page."
    },
    {
      "key": "doi", "label": "DOI", "type": "text",
      "description": "The digital object identifier of the article, beginning with 10., without https://doi.org/."
    },
    {
      "key": "registration_number", "label": "Trial registration number", "type": "text",
      "description": "The number under which the trial is registered: NCT, ISRCTN, EudraCT, ACTRN, ChiCTR or another registry. Stands near trial registration, registered at ClinicalTrials.gov, registry identifier."
    },
    {
      "key": "randomised", "label": "Randomised", "type": "boolean",
      "description": "Whether participants were assigned to the groups at random: randomised, randomized, randomly assigned, randomly allocated, random allocation."
    },
    {
      "key": "number_randomised", "label": "Number randomised", "type": "integer", "unit": "participants",
      "description": "How many participants were randomised in all groups together: patients were randomly assigned, underwent randomisation, were enrolled and randomised, total sample size."
    },
    {
      "key": "blinding", "label": "Blinding", "type": "list",
      "description": "Who did not know the assignment: participants, care givers, outcome assessors, analysts. Double-blind, single-blind, masked, open-label, unblinded."
    },
    {
      "key": "population", "label": "Population", "type": "text",
      "description": "Who took part: the condition, age and setting, and the inclusion criteria. Eligible patients were, adults with, participants aged, inclusion criteria."
    },
    {
      "key": "intervention", "label": "Intervention", "type": "text",
      "description": "What the intervention group received, with dose, frequency and duration: treatment, experimental group, intervention group, were assigned to receive."
    },
    {
      "key": "comparator", "label": "Comparator", "type": "text",
      "description": "What the control group received: placebo, usual care, standard care, control group, comparison, no treatment."
    },
    {
      "key": "primary_outcome", "label": "Primary outcome", "type": "text",
      "description": "The primary outcome or primary end point, with how and when it was measured: main outcome measure, primary endpoint was."
    },
    {
      "key": "follow_up", "label": "Follow-up", "type": "text",
      "description": "How long participants were followed: follow-up, median follow-up, weeks, months or years after randomisation."
    },
    {
      "key": "funding", "label": "Funding", "type": "text",
      "description": "Who paid for the trial: funded by, supported by, grant, sponsor, financial support, funding source."
    }
  ]$fields$::jsonb
)
on conflict (id) do nothing;

-- migrate:down

-- Where tasks were made from it, it stays until its table goes.
delete from asl_schema.template
where id = '01939f00-0000-7000-8000-000000000001'
  and not exists (
    select 1
    from asl_schema.extraction_task
    where template_id = '01939f00-0000-7000-8000-000000000001'
  );
