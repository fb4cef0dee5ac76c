import { setTimeout as sleep } from 'node:timers/promises';
import type { PgBoss } from 'pg-boss';
import type { Sql } from '../../src/db.ts';
import type { JobLimits } from '../../src/queue.ts';
import { cancelTask } from '../../src/tasks/cancel-task.ts';
import { createTask } from '../../src/tasks/create-task.ts';
import { retryTask } from '../../src/tasks/retry-task.ts';
import { NO_LIMITS, type TaskLimits } from '../../src/tasks/task.ts';
import { makeNamedDocuments, TRIAL_TEMPLATE_ID } from '../support/fixtures.ts';
import { type Plan, SHAPES, type StepKind, TASKS } from './chaos-plan.ts';
import { type CrashProcess, startCrashProcess } from './process.ts';

/** A place for one process after the other. */
export type Slot = { roles: string; process: CrashProcess | undefined; busy: boolean };

/** When something was done to a process, by its id; the clock is this machine's. */
export type Hit = { pid: number; kind: StepKind; atMs: number };

export type Chaos = {
  sql: Sql;
  boss: PgBoss;
  databaseUrl: string;
  plan: Plan;
  limits: JobLimits;
  env: Record<string, string>;
  slots: Slot[];
  hits: Hit[];
  done: Map<string, number>;
  /** Every process that ever ran. */
  processes: CrashProcess[];
  /** What went wrong beside the rows. */
  faults: string[];
};

export const count = (chaos: Chaos, what: string, by = 1): void =>
  void chaos.done.set(what, (chaos.done.get(what) ?? 0) + by);

export async function fillSlot(chaos: Chaos, slot: Slot): Promise<void> {
  const process = await startOne(chaos, slot.roles);
  chaos.processes.push(process);
  slot.process = process;
  void process.ended.then((end) => {
    if (slot.process !== process) return;
    slot.process = undefined;
    chaos.faults.push(`a process ended by itself (${end}):\n${process.log().slice(-2000)}`);
  });
}

/** A process that loses its database while it starts gives up, as it should; whoever runs it starts it again. */
async function startOne(chaos: Chaos, ROLES: string): Promise<CrashProcess> {
  for (let tries = 1; ; tries++) {
    try {
      return await startCrashProcess(chaos.databaseUrl, { env: { ...chaos.env, ROLES } });
    } catch (error) {
      if (tries === 5 || !/CONNECTION_|57P01|terminated/.test(String(error))) throw error;
      count(chaos, 'starts without a database');
    }
  }
}

/** Does one step. What it begins and does not end at once, such as a stop, goes on beside the next ones. */
export async function doStep(chaos: Chaos, kind: StepKind, step: number): Promise<void> {
  switch (kind) {
    case 'create a task':
      return void (await create(chaos, step));
    case 'create and cancel':
      return await createAndCancel(chaos, step);
    case 'cancel':
    case 'retry':
      return await onTask(chaos, kind, step);
    case 'end backends':
      return await endBackends(chaos, step);
    default:
      return await hitProcess(chaos, kind, step);
  }
}

export async function create(chaos: Chaos, step: number): Promise<string | undefined> {
  const { sql, boss, plan } = chaos;
  const papers = Math.round(plan.number(1, 40, 'papers', step));
  const kind = plan.choice(TASKS, 'task', step);
  const shape = plan.choice(SHAPES, 'shape', step);
  const names = Array.from({ length: papers }, (_, i) => `task-${step}-paper-${i}.txt`);
  const projectId = `chaos-${step}`;
  const documentIds = await makeNamedDocuments(sql, projectId, names);
  const limits: TaskLimits = { ...NO_LIMITS };
  if (kind === 'deadline') limits.deadlineAt = new Date(Date.now() + plan.number(500, 8000, 'deadline', step));
  if (kind === 'failure count') limits.maxFailedCount = Math.round(plan.number(0, 3, 'failures', step));
  if (kind === 'failure percent') limits.maxFailedPercent = plan.number(0, 20, 'failures', step);
  const request = {
    mode: shape === 'scatter' ? ('scatter' as const) : ('fanout' as const),
    projectId,
    templateId: TRIAL_TEMPLATE_ID,
    documentIds: shape === 'fan-out by project' ? null : documentIds,
    idempotencyKey: projectId,
    limits,
  };
  const created = await createTask(sql, boss, request, chaos.limits);
  count(chaos, `task: ${kind}`);
  count(chaos, `task: ${shape}`);
  if (created.outcome === 'created') return created.task.taskId;
  chaos.faults.push(`a create was answered ${created.outcome}`);
  return undefined;
}

async function createAndCancel(chaos: Chaos, step: number): Promise<void> {
  const taskId = await create(chaos, step);
  if (taskId === undefined) return;
  await sleep(chaos.plan.number(0, 120, 'cancel after', step));
  await cancelTask(chaos.sql, chaos.boss, taskId);
  count(chaos, 'cancel at once');
}

/** Which task it meets depends on how far the system has come: the one thing that a replay may do otherwise. */
async function onTask(chaos: Chaos, kind: 'cancel' | 'retry', step: number): Promise<void> {
  const { sql, boss, plan } = chaos;
  const tasks = await sql<{ id: string }[]>`
    select t.id
    from asl_schema.extraction_task t
    where ${
      kind === 'cancel'
        ? sql`t.status = 'processing'`
        : sql`t.status in ('cancelled', 'failed') or exists (
            select 1 from asl_schema.extraction_result r where r.task_id = t.id and r.status in ('error', 'cancelled'))`
    }
    order by t.id`;
  const task = tasks[Math.floor(plan.number(0, tasks.length, 'which', step))];
  if (task === undefined) return count(chaos, 'skipped');
  const taskId = task.id;
  if (kind === 'cancel') await cancelTask(sql, boss, taskId);
  else await retryTask(sql, boss, { taskId, limits: NO_LIMITS }, chaos.limits);
  count(chaos, kind);
}

async function endBackends(chaos: Chaos, step: number): Promise<void> {
  const ended = await chaos.sql`
    select pg_terminate_backend(pid)
    from pg_stat_activity
    where datname = current_database() and application_name in ('sheaf', 'sheaf-queue') and pid <> pg_backend_pid()
    order by md5(pid::text || ${String(step)})
    limit ${Math.round(chaos.plan.number(1, 5, 'backends', step))}`;
  count(chaos, 'backends ended', ended.count);
}

async function hitProcess(chaos: Chaos, kind: 'SIGKILL' | 'SIGSTOP' | 'SIGTERM', step: number): Promise<void> {
  const { slots, plan, hits } = chaos;
  const slot = slots[Math.floor(plan.number(0, slots.length, 'slot', step))];
  const process = slot?.process;
  if (slot === undefined || process === undefined || slot.busy) return count(chaos, 'skipped');
  slot.busy = true;
  count(chaos, kind);
  hits.push({ pid: process.pid, kind, atMs: Date.now() });
  if (kind === 'SIGSTOP') {
    // Half of them past the heartbeat, and some long enough to lose a transaction.
    const long = plan.number(0, 1, 'long', step) < 0.5;
    process.signal('SIGSTOP');
    await sleep(long ? plan.number(12_000, 22_000, 'stop', step) : plan.number(200, 4000, 'stop', step));
    process.signal('SIGCONT');
  } else {
    slot.process = undefined;
    process.signal(kind);
    const end = await process.ended;
    if (end !== (kind === 'SIGKILL' ? 'SIGKILL' : 0)) {
      chaos.faults.push(`after ${kind} a process: ${end}\n${process.log().slice(-2000)}`);
    }
    await fillSlot(chaos, slot);
  }
  slot.busy = false;
}
