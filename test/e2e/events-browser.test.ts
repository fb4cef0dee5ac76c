import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, test } from 'node:test';
import { type Browser, chromium } from 'playwright-core';
import { announceTasks } from '../../src/events/announce.ts';
import { createPublisher } from '../../src/events/publisher.ts';
import { breakableProxy } from '../support/breakable-proxy.ts';
import { makeTask, openTestBench, silent } from '../support/fixtures.ts';
import { startProcess } from '../support/process.ts';
import { until } from '../support/waiting.ts';

const executablePath = process.env.CHROMIUM_PATH || '/usr/bin/chromium';
const skip = existsSync(executablePath) ? false : `no browser at ${executablePath}: set CHROMIUM_PATH to run this`;

/** What the page has seen: names and data of events, and how often a connection was opened or lost. */
type Seen = {
  events: [name: string, data: Record<string, unknown>][];
  opened: number;
  lost: number;
  readyState: number;
};

const PAGE = `<!doctype html><title>A watcher</title><script>
  const seen = { events: [], opened: 0, lost: 0, readyState: 0 };
  const source = new EventSource(location.hash.slice(1));
  source.onopen = () => seen.opened++;
  source.onerror = () => seen.lost++;
  for (const name of ['snapshot', 'progress', 'result', 'log', 'end'])
    source.addEventListener(name, (event) => seen.events.push([name, JSON.parse(event.data)]));
</script>`;

async function openPage(origin: string, path: string) {
  const browser: Browser = await chromium.launch({
    executablePath,
    args: [
      ...['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
      ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
    ],
  });
  after(() => browser.close());
  const page = await browser.newPage();
  let requests = 0;
  page.on('request', (request) => {
    if (request.url().endsWith(path)) requests += 1;
  });
  // Of the service's own origin, as a page beside it would be.
  await page.route(`${origin}/page`, (route) => route.fulfill({ contentType: 'text/html', body: PAGE }));
  await page.goto(`${origin}/page#${path}`);
  const seen = (): Promise<Seen> => page.evaluate('({ ...seen, readyState: source.readyState })');
  return { seen, requests: () => requests };
}

test("a browser's EventSource comes back by itself to another process, has every event once, and stops at the end", {
  skip,
}, async () => {
  const bench = await openTestBench(import.meta.url);
  const { sql, url: databaseUrl } = bench;
  const publisher = createPublisher({ sql, log: silent });
  const api = { ROLES: 'api' };
  const [one, two] = await Promise.all([startProcess(databaseUrl, api), startProcess(databaseUrl, api)]);
  const proxy = await breakableProxy(one.url);
  const { taskId, resultIds } = await makeTask(bench, 1);
  const [resultId = ''] = resultIds;
  const say = (attempt: number): void =>
    publisher.publish({ type: 'result', taskId, resultId, status: 'pending', attempt });

  const { seen, requests } = await openPage(proxy.url, `/tasks/${taskId}/events`);
  const untilSeen = (what: string, check: (now: Seen) => boolean) =>
    until(what, async () => {
      const now = await seen();
      return check(now) && now;
    });
  const of = ({ events }: Seen, wanted: string) => events.filter(([name]) => name === wanted).map(([, data]) => data);

  await untilSeen('a snapshot', (now) => of(now, 'snapshot').length === 1);
  say(1);
  say(2);
  await untilSeen('two results', (now) => of(now, 'result').length === 2);
  proxy.cut(two.url);
  await untilSeen('the break', (now) => now.lost === 1);
  say(3);
  const back = await untilSeen('a snapshot of the other process', (now) => of(now, 'snapshot').length === 2);
  assert.deepEqual(
    of(back, 'snapshot').map(({ resumed }) => resumed),
    [false, true],
  );
  // A process that stops is a break like any other.
  say(4);
  await untilSeen('four results', (now) => of(now, 'result').length === 4);
  proxy.cut(one.url);
  assert.equal(await two.stop(), 0);
  await untilSeen('a third snapshot', (now) => of(now, 'snapshot').length === 3);
  say(5);

  await untilSeen('five results', (now) => of(now, 'result').length >= 5);
  await sql`update asl_schema.extraction_task set status = 'completed', completed_at = now() where id = ${taskId}`;
  await announceTasks(sql, [taskId]);
  const last = await untilSeen('that it has stopped', (now) => now.readyState === 2);
  assert.deepEqual(
    of(last, 'result').map(({ attempt }) => attempt),
    [1, 2, 3, 4, 5],
  );
  assert.deepEqual(
    last.events.slice(-2).map(([name, data]) => [name, data.status]),
    [
      ['progress', 'completed'],
      ['end', 'completed'],
    ],
  );
  assert.equal(last.opened, 3);
  // Three streams, and the one that was told to stop.
  assert.equal(requests(), 4);
  assert.equal(await one.stop(), 0);
});
