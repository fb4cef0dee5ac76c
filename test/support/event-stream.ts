import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { after } from 'node:test';
import { until } from './waiting.ts';

// biome-ignore lint/suspicious/noExplicitAny: what came over the wire; the test that reads it says what it must be.
export type StreamEvent = { event: string; id: string; data: any };

export type EventStream = {
  answer: IncomingMessage;
  /** All events so far that have data. */
  events: StreamEvent[];
  /** The events of one kind so far. */
  of: (event: string) => StreamEvent[];
  /** The id that a reconnect would send. */
  lastEventId: () => string;
  /** Everything that came, as it came. */
  text: () => string;
  /** Whether the stream has ended, by the server or by a broken connection. */
  ended: () => boolean;
  /** Waits for so many events of a kind; answers the last of them. */
  untilEvent: (event: string, count?: number) => Promise<StreamEvent>;
  close: () => void;
};

/** Opens a live stream as `curl -N` does and reads it as the HTML standard says; the answer must be 200. */
export async function openStream(url: string, headers: Record<string, string> = {}): Promise<EventStream> {
  const request = get(url, { agent: false, headers });
  // A connection that breaks later ends the answer, and that is enough.
  const answering = once(request, 'response');
  request.on('error', () => {});
  const [answer] = (await answering) as [IncomingMessage];
  if (answer.statusCode !== 200) {
    const body = await answer.setEncoding('utf8').toArray();
    throw new Error(`${answer.statusCode} ${body.join('')}`);
  }
  return readStream(answer);
}

function readStream(answer: IncomingMessage): EventStream {
  const events: StreamEvent[] = [];
  let text = '';
  let rest = '';
  let lastEventId = '';
  let ended = false;
  answer.setEncoding('utf8');
  answer.on('data', (chunk: string) => {
    text += chunk;
    const blocks = (rest + chunk).split('\n\n');
    rest = blocks.pop() ?? '';
    for (const block of blocks) take(block);
  });
  answer.on('error', () => {});
  answer.on('close', () => {
    ended = true;
  });
  after(() => void answer.destroy());

  function take(block: string): void {
    let event = 'message';
    const data: string[] = [];
    for (const line of block.split('\n')) {
      const [, field, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
      if (field === 'id') lastEventId = value ?? '';
      if (field === 'event') event = value ?? '';
      if (field === 'data') data.push(value ?? '');
    }
    if (data.length > 0) events.push({ event, id: lastEventId, data: JSON.parse(data.join('\n')) });
  }

  const of = (event: string): StreamEvent[] => events.filter((one) => one.event === event);
  return {
    answer,
    events,
    of,
    lastEventId: () => lastEventId,
    text: () => text,
    ended: () => ended,
    untilEvent: (event, count = 1) =>
      until(`${count} of ${event} in ${JSON.stringify(events.map((one) => one.event))}`, () => of(event)[count - 1]),
    close: () => answer.destroy(),
  };
}
