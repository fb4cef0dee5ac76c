import { afterEach } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { type Hub, type HubOptions, startHub } from '../../src/events/hub.ts';
import { createPublisher } from '../../src/events/publisher.ts';
import type { WatchedTask } from '../../src/events/watched-task.ts';
import { openTestDatabase } from '../support/database.ts';
import { silent } from '../support/fixtures.ts';

/** A task as the test says, and how often and when it was read. */
export type Scene = {
  task: WatchedTask | undefined;
  error?: Error;
  readMs: number;
  readsAtMs: number[];
  details: number;
};

export type Client = {
  outcome: string;
  /** Everything that was taken. */
  text: () => string;
  events: () => { event: string; id: string | undefined; data: Record<string, unknown> }[];
  names: () => string;
  lastEventId: () => string | undefined;
  cut: () => boolean;
  ended: () => boolean;
  /** Takes what there is from now on. */
  readOn: () => void;
  takeOne: () => void;
  leave: () => Promise<void>;
};

/** Hubs over a stand-in for the tasks, on a database of the file's own, and clients of theirs. */
export async function openHubBench(file: string) {
  const { sql } = await openTestDatabase(file);
  const publisher = createPublisher({ sql, log: silent, intervalMs: 5 });

  const scenes = new Map<string, Scene>();
  const hubs: Hub[] = [];

  function newTask(change: Partial<Scene> = {}): { taskId: string; scene: Scene } {
    const taskId = uuidv7();
    const scene: Scene = { task: { ...open(0), details: {} }, readMs: 0, readsAtMs: [], details: 0, ...change };
    scenes.set(taskId, scene);
    return { taskId, scene };
  }
  const open = (done: number): WatchedTask => ({ progress: { done }, closedAtMs: undefined, details: undefined });
  const closed = (closedAtMs: number): WatchedTask => ({ progress: { closed: true }, closedAtMs, details: undefined });

  const read: HubOptions['read'] = async (taskId, wanted) => {
    const scene = scenes.get(taskId);
    if (scene === undefined) return undefined;
    scene.readsAtMs.push(performance.now());
    if (wanted.details) scene.details += 1;
    const { task, error } = scene;
    if (scene.readMs > 0) await new Promise((resolve) => setTimeout(resolve, scene.readMs));
    if (error) throw error;
    return task && { ...task, details: wanted.details ? { detailed: scene.details } : undefined };
  };

  async function newHub(limits: HubOptions['limits'] = {}): Promise<Hub> {
    const hub = await startHub({
      sql,
      read,
      log: silent,
      limits: { refreshMs: 20, lingerMs: 50, tendMs: 10, ...limits },
    });
    hubs.push(hub);
    return hub;
  }

  afterEach(() => {
    for (const hub of hubs.splice(0)) hub.close();
    scenes.clear();
  });

  async function watch(hub: Hub, taskId: string, lastEventId?: string, reading = true): Promise<Client> {
    let wasCut = false;
    let ended = false;
    let text = '';
    const watching = await hub.watch(taskId, { lastEventId, cut: () => (wasCut = true) });
    const pieces = watching.outcome === 'open' ? watching.pieces : undefined;
    const readOn = async (): Promise<void> => {
      for (let piece = await pieces?.next(); piece && !piece.done; piece = await pieces?.next()) {
        text += Buffer.from(piece.value).toString();
      }
      ended = true;
    };
    const events = () =>
      text.split('\n\n').flatMap((block) => {
        const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1];
        const data = field('data');
        return data === undefined ? [] : [{ event: field('event') ?? '', id: field('id'), data: JSON.parse(data) }];
      });
    if (reading) void readOn();
    return {
      outcome: watching.outcome,
      text: () => text,
      events,
      names: () =>
        events()
          .map(({ event }) => event)
          .join(' '),
      lastEventId: () =>
        text
          .match(/^id: (.*)$/gm)
          ?.at(-1)
          ?.slice(4),
      cut: () => wasCut,
      ended: () => ended,
      readOn: () => void readOn(),
      takeOne: () => void pieces?.next(),
      leave: async () => void (await pieces?.return()),
    };
  }

  const say = (taskId: string, message: string) => publisher.publish({ type: 'log', taskId, level: 'info', message });
  const messages = (client: Client) =>
    client.events().flatMap(({ event, data }) => (event === 'log' ? [String(data.message)] : []));
  return { sql, publisher, scenes, newTask, open, closed, newHub, watch, say, messages };
}
