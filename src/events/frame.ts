/** One event of a stream as the HTML standard has it (text/event-stream). JSON holds no line breaks, so one line is enough. */
export function toFrame(parts: { id?: string | undefined; event: string; data: object }): Buffer {
  const id = parts.id === undefined ? '' : `id: ${parts.id}\n`;
  return Buffer.from(`${id}event: ${parts.event}\ndata: ${JSON.stringify(parts.data)}\n\n`);
}

/** How long a client waits before it comes back: not all at the same moment when a process stops. */
export function retryFrame(): Buffer {
  return Buffer.from(`retry: ${1000 + Math.floor(Math.random() * 1000)}\n\n`);
}

/**
 * A sign of life that a client sees nothing of. It carries the place up to which the client has had everything, which an
 * event without data may do: after a quiet hour it can still go on from there.
 */
export function keepAliveFrame(id: string | undefined): Buffer {
  return Buffer.from(id === undefined ? ': keep-alive\n\n' : `: keep-alive\nid: ${id}\n\n`);
}

/** The id of an `end`: which closing of the task it was, and where the client can go on should the task be opened again. */
export function endId(place: string | undefined, closedAtMs: number): string {
  return `${place ?? ''}~${closedAtMs}`;
}

/** Reads the id of the last event that a client has had. What is no id of ours says nothing. */
export function parseEventId(text: string | undefined): { place?: string; closedAtMs?: number } {
  const [, place, closing] = /^([\w-]{8,40}\.\d{1,6})?(?:~(\d{1,16}))?$/.exec(text ?? '') ?? [];
  return { ...(place ? { place } : {}), ...(closing ? { closedAtMs: Number(closing) } : {}) };
}
