import { encodeEvent } from './payload.ts';
import type { TaskEvent } from './task-event.ts';

/** Events that wait to be sent, in their order and within bounds. */
export type Backlog = {
  add(event: TaskEvent): void;
  isEmpty(): boolean;
  /** Takes the oldest events, encoded: as many as these bytes hold, and at least one. */
  take(maxBytes: number): string[];
};

type Entry = { type: TaskEvent['type']; taskId: string; text: string };

/** Some ten thousand results. */
const MAX_BYTES = 2 * 1024 * 1024;
const MAX_CHANGED_TASKS = 10_000;

/**
 * When there are too many, the oldest log lines go first, then the oldest results. Their tasks are remembered as changed, so
 * that whoever watches one looks at it: what is lost is the way there, not the state.
 */
export function createBacklog(maxBytes = MAX_BYTES): Backlog {
  let entries: Entry[] = [];
  let bytes = 0;
  /** Tasks about which there is more to say than an entry does; in order, so that the oldest is forgotten first. */
  const changed = new Set<string>();

  const change = (taskId: string): void => {
    changed.delete(taskId);
    changed.add(taskId);
    const [oldest] = changed;
    if (changed.size > MAX_CHANGED_TASKS && oldest !== undefined) changed.delete(oldest);
  };

  /** Drops to three quarters at once, so that a full backlog is not gone through for every event. */
  const shrink = (): void => {
    for (const type of ['log', 'result']) {
      entries = entries.filter((entry) => {
        if (entry.type !== type || bytes <= maxBytes * 0.75) return true;
        bytes -= Buffer.byteLength(entry.text);
        change(entry.taskId);
        return false;
      });
    }
  };

  return {
    add(event) {
      if (event.type === 'task') return change(event.taskId);
      const text = encodeEvent(event);
      entries.push({ type: event.type, taskId: event.taskId, text });
      bytes += Buffer.byteLength(text);
      if (bytes > maxBytes) shrink();
    },
    isEmpty: () => entries.length === 0 && changed.size === 0,
    take(atMost) {
      const texts: string[] = [];
      let room = atMost;
      let count = 0;
      for (const { text } of entries) {
        room -= Buffer.byteLength(text);
        if (room < 0 && count > 0) break;
        texts.push(text);
        count += 1;
      }
      bytes -= texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
      entries.splice(0, count);
      // Last, so that whoever looks at the task then has heard all that came before.
      for (const taskId of changed) {
        const text = encodeEvent({ type: 'task', taskId });
        room -= text.length;
        if (room < 0 && texts.length > 0) break;
        texts.push(text);
        changed.delete(taskId);
      }
      return texts;
    },
  };
}
