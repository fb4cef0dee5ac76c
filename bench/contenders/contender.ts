import type { Work } from '../work.ts';

/** What a worker process is started with: the same for all. */
export type WorkerSettings = {
  databaseUrl: string;
  /** Items at a time. */
  slots: number;
  /** Connections of the pool, for those who want one for each slot. What a contender opens beside it, to listen or for its upkeep, is its own affair. */
  poolSize: number;
  /** Of the contender's own Redis, where it has one. */
  redisUrl?: string | undefined;
};

/** The side that submits, and asks whether the work is done. */
export type Client = {
  /** Makes what a submit of `count` items needs to exist before; it is not measured. */
  stage(count: number): Promise<Submit>;
  /** How many results of a task are durable by now. */
  countDone(taskId: string): Promise<number>;
  /** Whether the task says of itself that it is complete; undefined for those who know no tasks. */
  isClosed?(taskId: string): Promise<boolean>;
  close(): Promise<void>;
};

/** One call that submits all items. Answers the task's id. */
export type Submit = () => Promise<string>;

export type ClientSettings = Pick<WorkerSettings, 'databaseUrl' | 'redisUrl'>;

/** Plain: as the first page of its documentation shows it. Tuned: with what its documentation has for throughput. */
export type ContenderForm = 'ours' | 'plain' | 'tuned';

export type Contender = {
  /** As the tables say it. */
  name: string;
  form: ContenderForm;
  /** Whether it needs a Redis beside the PostgreSQL that holds the results. */
  needsRedis?: boolean;
  /** The schema, once in a run, in an empty database of its own. */
  prepare(databaseUrl: string): Promise<void>;
  openClient(settings: ClientSettings): Promise<Client>;
  /** Starts to work in this process; answers how to stop. */
  startWorker(settings: WorkerSettings, work: Work): Promise<() => Promise<void>>;
};
