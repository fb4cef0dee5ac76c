import { Hono } from 'hono';
import * as v from 'valibot';
import type { Stage } from '../permits/stage.ts';
import { readStages, resumeStage, setStage } from '../permits/stage-store.ts';
import type { AppDependencies } from './app.ts';
import { readJson, readOptionalJson } from './body.ts';
import { Problem } from './problem.ts';
import { parse, parseQuery, strict } from './schemas.ts';

const STAGES: readonly Stage[] = ['parse', 'llm'];
const MAX_PERMITS = 10_000;
const MAX_BUDGET = 2 ** 31 - 1;

function whole(min: number, max: number) {
  return v.pipe(
    v.number('must be a whole number'),
    v.integer('must be a whole number'),
    v.minValue(min, `must be at least ${min}`),
    v.maxValue(max, `must be at most ${max}`),
  );
}

const change = strict({
  permits: v.optional(whole(0, MAX_PERMITS)),
  requestsPerMinute: v.optional(v.nullable(whole(1, MAX_BUDGET))),
  tokensPerMinute: v.optional(v.nullable(whole(1, MAX_BUDGET))),
});

/** The stages that all processes share: how they stand, their limits, and an end to a pause. */
export function stages({ sql }: AppDependencies): Hono {
  const app = new Hono();

  app.get('/', async (c) => {
    parseQuery(c, {});
    return c.json({ data: await readStages(sql) });
  });

  app.patch('/:stage', async (c) => {
    parseQuery(c, {});
    const stage = stageOf(c.req.param('stage'));
    await setStage(sql, stage, parse(change, await readJson(c)));
    return c.json(await readStage(stage));
  });

  app.post('/:stage/resume', async (c) => {
    parseQuery(c, {});
    const stage = stageOf(c.req.param('stage'));
    parse(strict({}), await readOptionalJson(c));
    await resumeStage(sql, stage);
    return c.json(await readStage(stage));
  });

  async function readStage(stage: Stage) {
    return (await readStages(sql)).find((one) => one.stage === stage) ?? null;
  }

  return app;
}

function stageOf(name: string): Stage {
  const stage = STAGES.find((known) => known === name);
  if (stage === undefined) throw new Problem(404, 'stage_not_found', `the stages are ${STAGES.join(' and ')}`);
  return stage;
}
