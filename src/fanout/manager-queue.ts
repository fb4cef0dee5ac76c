import type { PgBoss } from 'pg-boss';
import type { Tx } from '../db.ts';
import { type HeldJob, type JobLimits, MANAGER_QUEUE, on } from '../queue.ts';

/** A manager's payload. */
export type ManagerJob = { taskId: string };

/**
 * Puts a manager's job into the queue, in the caller's transaction. The task's live job, if it has one, stays the only one:
 * so this may be said twice.
 */
export async function insertManagerJob(boss: PgBoss, tx: Tx, taskId: string, limits: JobLimits): Promise<void> {
  const job = {
    data: { taskId } satisfies ManagerJob,
    singletonKey: `manager-${taskId}`,
    expireInSeconds: 60 * 60,
    heartbeatSeconds: limits.heartbeatSeconds,
    retryLimit: limits.maxAttempts,
    retryDelay: 0,
  };
  await boss.insert(MANAGER_QUEUE, [job], on(tx));
}

/**
 * Whether the task whose id is the column `taskId` has a manager, at work or to come. Said as the queue's unique index of live
 * jobs is made, on which it rides: among 10,000 tasks that wait for a manager, each has one look.
 */
export function hasManager(tx: Tx, taskId: 't.id' | 'y.task_id') {
  return tx`exists (
        select 1
        from pgboss.job j
        where j.name = ${MANAGER_QUEUE}
          and j.policy = 'exclusive'
          and coalesce(j.singleton_key, '') = 'manager-' || ${tx(taskId)}
          and j.state in ('created', 'retry', 'active')
      )`;
}

/** Completes a manager's own delivery, and no later one of the same job. Answers whether it still was its own. */
export async function completeManagerJob(boss: PgBoss, tx: Tx, job: HeldJob): Promise<boolean> {
  const response = await boss.complete(MANAGER_QUEUE, { id: job.id, retryCount: job.retryCount }, null, on(tx));
  // Version 12.38 answers with the count, but its type does not declare it.
  return (response as { affected?: number }).affected === 1;
}

/** Gives a manager's delivery back for another to start at once, which spends none. */
export async function returnManagerJob(
  boss: PgBoss,
  tx: Tx,
  { taskId, job }: { taskId: string; job: HeldJob },
  limits: JobLimits,
): Promise<void> {
  await completeManagerJob(boss, tx, job);
  await insertManagerJob(boss, tx, taskId, limits);
}
