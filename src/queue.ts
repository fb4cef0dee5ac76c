import { type Job as BossJob, type Db, PgBoss } from 'pg-boss';
import type { Sql, Tx } from './db.ts';
import { describeError, type Logger } from './log.ts';

/** Delivers one result of a scatter task to one worker. Names are `[a-z0-9_]+`: pg-boss takes them apart at dots. */
export const EXTRACT_QUEUE = 'asl_extract_single';
/** The same for a fan-out task. */
export const CHILD_QUEUE = 'asl_extract_child';
/** Delivers a fan-out task to a manager, which makes its results and their jobs. */
export const MANAGER_QUEUE = 'asl_extract_manager';
/** Filled by the schedule below; whoever takes its job looks after fan-out tasks that nothing moves any more. */
export const SWEEPER_QUEUE = 'asl_fanout_sweeper';
const SWEEPER_CRON = '*/10 * * * *';

/** The queues that deliver results. */
export type ResultQueue = typeof EXTRACT_QUEUE | typeof CHILD_QUEUE;

/** A job's payload: ids only. */
export type ExtractJob = { taskId: string; resultId: string };

/** How a delivery ends by itself when its worker says nothing. */
export type JobLimits = {
  /** Bounds the execution, from the moment a worker takes the job; waiting in the queue is not counted. */
  jobExpirySeconds: number;
  /** A delivery without a sign of life for this long is given up and made again. */
  heartbeatSeconds: number;
  /** How many deliveries of one job may lapse before pg-boss gives the job up. */
  maxAttempts: number;
};

export type Job = ExtractJob & {
  jobId: string;
  /** Not before this much time from now. */
  delayMs?: number;
  /** Higher ones are delivered first. Default 0: before all that tasks have put in line. */
  priority?: number;
};

/**
 * pg-boss on the connection or transaction of the caller, so that jobs commit with the rows they belong to.
 *
 * Named prepared statements are 20-40 % faster here, but only inserts are some. The others choose among the many indexes of a
 * job table, and a plan that was made for an empty queue, and is kept, would compare every job with every other.
 */
export function on(sql: Sql | Tx): { db: Db } {
  return {
    db: {
      async executeSql(text: string, values: unknown[] = []) {
        // postgres.js refuses undefined; pg-boss means null by it.
        const parameters = values.map((value) => value ?? null) as never[];
        const prepare = text.trimStart().startsWith('INSERT');
        return { rows: await sql.unsafe(byKey(text), parameters, { prepare }) };
      },
    },
  };
}

/**
 * The statements that complete and touch jobs name them by their keys, and demand that they are active. Few are, so the planner
 * goes by an index of that, through all that were active since the last vacuum: with a transaction that idles somewhere for an
 * hour, all of that hour. This hides the state from it. Should a version of pg-boss say it otherwise, the statement stays as it is.
 */
function byKey(text: string): string {
  return text.includes('id = ANY(') ? text.replaceAll("AND state = 'active'", "AND (state = 'active') IS TRUE") : text;
}

/** The lowest priority of these jobs. Rides on the primary key. */
export async function lowestPriority(
  sql: Sql,
  queue: ResultQueue,
  jobs: readonly HeldJob[],
): Promise<number | undefined> {
  const [row] = await sql<{ lowest: number | null }[]>`
    select min(priority) as lowest
    from pgboss.job
    where name = ${queue}
      and id = any(${jobs.map(({ id }) => id)}::uuid[])`;
  return row?.lowest ?? undefined;
}

/**
 * Puts jobs into the queue, in the caller's transaction. The queue's policy lets no second live job of one result in, so a
 * job that was not inserted is a broken promise and rolls the transaction back.
 */
export async function insertJobs(
  boss: PgBoss,
  tx: Tx,
  queue: ResultQueue,
  jobs: readonly Job[],
  limits: JobLimits,
): Promise<void> {
  // One statement of 100,000 rows takes 420 MB of the process; chunks of a few thousand are as fast.
  for (let from = 0; from < jobs.length; from += 5000) {
    const chunk = jobs.slice(from, from + 5000);
    const rows = chunk.map((job) => ({
      id: job.jobId,
      data: { taskId: job.taskId, resultId: job.resultId } satisfies ExtractJob,
      singletonKey: `extract-${job.resultId}`,
      expireInSeconds: limits.jobExpirySeconds,
      heartbeatSeconds: limits.heartbeatSeconds,
      retryLimit: limits.maxAttempts,
      retryDelay: 0,
      priority: job.priority ?? 0,
      ...(job.delayMs ? { startAfter: new Date(Date.now() + job.delayMs).toISOString() } : {}),
    }));
    const inserted = await boss.insert(queue, rows, { ...on(tx), returnId: true });
    if (inserted?.length !== chunk.length) {
      throw new Error(
        `${chunk.length - (inserted?.length ?? 0)} of ${chunk.length} jobs have a live twin in the queue`,
      );
    }
  }
}

/**
 * The priority at the head of the queue: that of the job which is delivered next, or 0 when none waits.
 *
 * Tasks share the workers fairly by it. A task's results stand in line one behind the other, with priorities that fall by one
 * from the head of the queue at its create. So two tasks are served in turn from the moment the second one comes, and a task
 * of 5 papers beside one of 10,000 waits for about 5 of them (start-time fair queueing; Goyal, Vin and Cheng 1996). Rides on
 * the index of pg-boss' own fetch.
 */
export async function headPriority(tx: Tx, queue: ResultQueue): Promise<number> {
  const [head] = await tx<{ priority: number }[]>`
    select priority
    from pgboss.job
    where name = ${queue}
      and state < 'active'
      and not blocked
      -- A job that waits for its time is at the head of nothing.
      and start_after <= now()
    order by priority desc, created_on
    limit 1`;
  return Math.min(0, head?.priority ?? 0);
}

/** What names one delivery: a call that shows it can't touch a later delivery of the same job. */
export type HeldJob = Pick<BossJob, 'id' | 'retryCount'>;

/**
 * A sign of life for jobs that this process holds, in one statement. Answers which of them it still holds: a job that is
 * missing has been given to another worker, or has ended.
 */
export async function touchJobs(
  boss: PgBoss,
  sql: Sql,
  queue: ResultQueue | typeof MANAGER_QUEUE,
  jobs: readonly HeldJob[],
): Promise<Set<string>> {
  const response = await boss.touch(queue, [...jobs], on(sql));
  // Version 12.38 answers with the ids, but its type declares nothing at all.
  return new Set((response as { settled: string[] }).settled);
}

export type QueueOptions = {
  databaseUrl: string;
  /** A connection of the queue's own that is silent for this long is given up. */
  silenceMs?: number;
  /** How often lapsed heartbeats are looked for, in seconds. Default 5. */
  monitorSeconds?: number;
  /** Whether this process looks for lapsed heartbeats and expired jobs, and fills scheduled queues, for all processes. */
  supervise: boolean;
  log: Logger;
};

/**
 * Starts pg-boss on a small pool of its own, for its upkeep; what must commit with our rows runs on ours, through `on`.
 *
 * @throws when the schema is not the one this version needs: `make migrate` brings it
 */
export async function startQueue(options: QueueOptions): Promise<PgBoss> {
  const { monitorSeconds = 5, silenceMs } = options;
  // Handed on to its `pg` pool as it is, though pg-boss does not declare it.
  const patience = silenceMs === undefined ? {} : { query_timeout: silenceMs };
  const boss = new PgBoss({
    ...patience,
    connectionString: options.databaseUrl,
    application_name: 'sheaf-queue',
    max: 2,
    migrate: false,
    createSchema: false,
    schedule: options.supervise,
    supervise: options.supervise,
    // A pass needs both intervals to be over, so a dead worker is found at most two of them after its heartbeat lapsed.
    superviseIntervalSeconds: monitorSeconds,
    monitorIntervalSeconds: monitorSeconds,
    registerInstance: false,
  });
  // Without a listener an error event ends the process.
  boss.on('error', (error) => options.log.error('queue upkeep failed', { error: describeError(error) }));
  boss.on('warning', (warning) => options.log.warn('queue warning', { warning: warning.message }));
  return await boss.start();
}

/** Brings pg-boss's own schema to the version of this package, and creates our queues. Idempotent. */
export async function migrateQueue(databaseUrl: string): Promise<void> {
  const boss = new PgBoss({ connectionString: databaseUrl, max: 2, schedule: false, supervise: false });
  boss.on('error', () => {});
  await boss.start();
  try {
    const existing = new Set((await boss.getQueues()).map((queue) => queue.name));
    for (const name of [EXTRACT_QUEUE, CHILD_QUEUE]) {
      // A table of its own. Creating it stalls other queues for a moment, which is why it happens here and not at boot.
      if (!existing.has(name)) await boss.createQueue(name, { ...LIVE_ONCE, partition: true });
    }
    if (!existing.has(MANAGER_QUEUE)) await boss.createQueue(MANAGER_QUEUE, LIVE_ONCE);
    if (!existing.has(SWEEPER_QUEUE)) {
      // A round that was missed is not made up for: the next one sees the same.
      await boss.createQueue(SWEEPER_QUEUE, { policy: 'exclusive', retryLimit: 0, deleteAfterSeconds: 24 * 60 * 60 });
    }
    await boss.schedule(SWEEPER_QUEUE, SWEEPER_CRON);
  } finally {
    await boss.stop({ graceful: false });
  }
}

const LIVE_ONCE = {
  // Never two live jobs of one singletonKey. The policy can't be changed afterwards.
  policy: 'exclusive',
  // A queued job is never thrown away before a task of any sensible size is through.
  retentionSeconds: 90 * 24 * 60 * 60,
  // Ended jobs are of no use: the result's row and its attempts are the history.
  deleteAfterSeconds: 60 * 60,
} as const;
