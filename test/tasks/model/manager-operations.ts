import { addChunk } from '../../../src/fanout/expand-task.ts';
import { giveUpExpansion } from '../../../src/fanout/fail-task.ts';
import type { ManagerJob } from '../../../src/fanout/manager-queue.ts';
import { MANAGER_QUEUE, on } from '../../../src/queue.ts';
import { CHUNK, jobLimits } from './limits.ts';
import type { Operation } from './operations.ts';
import { type Event, type Ground, pick } from './world.ts';

/** One chunk by a manager, of a task that it takes now or was once given. It does not ask first whether that is still its own. */
export async function expand(ground: Ground, operation: Extract<Operation, { do: 'expand' }>): Promise<Event[]> {
  const { sql, boss, world } = ground;
  const { expanding } = world.workers[operation.worker];
  if (operation.takes) {
    const jobs = await boss.fetch<ManagerJob>(MANAGER_QUEUE, { batchSize: 1, ...on(sql) });
    expanding.push(...jobs.map(({ id, retryCount, data }) => ({ taskId: data.taskId, job: { id, retryCount } })));
  }
  const held = pick(expanding, operation.takes ? 0 : operation.which);
  if (held === undefined) return [];
  const outcome = await addChunk(sql, boss, { ...held, chunkSize: CHUNK }, jobLimits);
  await rememberResults(ground, held.taskId);
  return [{ event: 'expand', held, outcome }];
}

/** What a manager does when its chunk has failed too often. */
export async function giveUp(ground: Ground, operation: Extract<Operation, { do: 'giveUp' }>): Promise<Event[]> {
  const { sql, boss, world } = ground;
  const held = pick(world.workers[operation.worker].expanding, operation.which);
  if (held === undefined) return [];
  await giveUpExpansion(sql, boss, held);
  return [{ event: 'giveUp', held }];
}

/** The results that a task has by now, in their order, behind those that are known. */
export async function rememberResults({ sql, world }: Ground, taskId: string): Promise<void> {
  const rows = await sql<{ id: string }[]>`
    select id from asl_schema.extraction_result where task_id = ${taskId} order by id`;
  for (const { id } of rows) if (!world.resultIds.includes(id)) world.resultIds.push(id);
}
