import { toFrame } from './frame.ts';
import type { Payload } from './payload.ts';
import type { LogEvent, ResultEvent } from './task-event.ts';

/**
 * A place in the order of all events of the database. NOTIFY delivers in one order to everybody, and `id` is made of the
 * sender's payload, so that it names the same place in every process; `seq` counts in this one.
 */
export type Place = { seq: number; id: string | undefined };

/** An event that clients are sent, and its place: the one just behind it. */
export type HeardEvent = Place & { event: ResultEvent | LogEvent; toFrame(): Buffer };

/** What this process has heard in the last minute of all tasks, whoever watches them or none. */
export type RecentEvents = {
  /** Keeps a payload's events and answers those of them that are new to this process. */
  add(payload: Payload, byteSize: number, nowMs: number): HeardEvent[];
  /** Behind all that was heard. */
  end(): Place;
  /** The place that an id names, as long as all that came behind it is still known. */
  find(id: string): Place | undefined;
  /** One task's events behind a place, oldest first; undefined: some may be forgotten by now. */
  after(seq: number, taskId: string): readonly HeardEvent[] | undefined;
  /** Forgets what is too old. */
  prune(nowMs: number): void;
  /** Forgets everything: events may have been missed, and so nobody can go on from before. */
  clear(): void;
};

export type RecentLimits = { keepMs: number; maxBytes: number };

type Kept = { fromSeq: number; count: number; taskIds: string[]; byteSize: number; heardAtMs: number };

export function createRecentEvents({ keepMs, maxBytes }: RecentLimits): RecentEvents {
  /** By id, oldest first. */
  const payloads = new Map<string, Kept>();
  const byTask = new Map<string, HeardEvent[]>();
  let bytes = 0;
  let end: Place = { seq: 0, id: undefined };
  /** Up to here. */
  let forgottenSeq = 0;

  const forget = (id: string, { taskIds, fromSeq, count, byteSize }: Kept): void => {
    payloads.delete(id);
    bytes -= byteSize;
    forgottenSeq = fromSeq + count;
    for (const taskId of new Set(taskIds)) {
      const events = byTask.get(taskId) ?? [];
      const gone = events.findIndex(({ seq }) => seq > forgottenSeq);
      if (gone === -1) byTask.delete(taskId);
      else events.splice(0, gone);
    }
  };

  const prune = (nowMs: number): void => {
    for (const [id, kept] of payloads) {
      // The last one stays, however old: nothing has come behind it that could be missed.
      if (payloads.size === 1) return;
      if (bytes <= maxBytes && nowMs - kept.heardAtMs <= keepMs) return;
      forget(id, kept);
    }
  };

  return {
    add({ id, events }, byteSize, nowMs) {
      // A sender that had no answer sends the same again.
      if (payloads.has(id)) return [];
      const fromSeq = end.seq;
      const heard = events.flatMap((event, i): HeardEvent[] => {
        if (event === undefined || event.type === 'task') return [];
        return [keepEvent(event, { seq: fromSeq + i + 1, id: `${id}.${i + 1}` })];
      });
      for (const one of heard) {
        const known = byTask.get(one.event.taskId);
        if (known) known.push(one);
        else byTask.set(one.event.taskId, [one]);
      }
      end = { seq: fromSeq + events.length, id: `${id}.${events.length}` };
      const taskIds = heard.map(({ event }) => event.taskId);
      payloads.set(id, { fromSeq, count: events.length, taskIds, byteSize, heardAtMs: nowMs });
      bytes += byteSize;
      prune(nowMs);
      return heard;
    },
    end: () => end,
    find(id) {
      const dot = id.lastIndexOf('.');
      const payload = payloads.get(id.slice(0, dot));
      const nth = Number(id.slice(dot + 1));
      return payload && nth <= payload.count ? { seq: payload.fromSeq + nth, id } : undefined;
    },
    after(seq, taskId) {
      if (seq < forgottenSeq) return undefined;
      const events = byTask.get(taskId) ?? [];
      // From the end: what is wanted is seldom more than the last few.
      return events.slice(events.findLastIndex((event) => event.seq <= seq) + 1);
    },
    prune,
    clear() {
      payloads.clear();
      byTask.clear();
      bytes = 0;
      end = { seq: end.seq, id: undefined };
      forgottenSeq = end.seq;
    },
  };
}

/** Its frame is made once, when the first client wants it, and is the same bytes for all of them. */
function keepEvent(event: ResultEvent | LogEvent, place: Place): HeardEvent {
  let frame: Buffer | undefined;
  return {
    ...place,
    event,
    toFrame() {
      frame ??= toFrame({ id: place.id, event: event.type, data: toJson(event) });
      return frame;
    },
  };
}

/** As clients see it. */
function toJson(event: ResultEvent | LogEvent): object {
  const { type, taskId, ...data } = event;
  return event.type === 'log' && event.at !== undefined ? { ...data, at: new Date(event.at) } : data;
}
