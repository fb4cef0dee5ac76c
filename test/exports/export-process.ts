// The API alone in a process of its own, which tells on request how much memory it uses and how much it has asked the database.
import type { AddressInfo } from 'node:net';
import { loadConfig } from '../../src/config.ts';
import { connect } from '../../src/db.ts';
import { createApp } from '../../src/http/app.ts';
import { startServer } from '../../src/http/server.ts';
import { startQueue } from '../../src/queue.ts';
import { silent } from '../support/fixtures.ts';

/** What the process answers to any message. */
export type Usage = { rssBytes: number; statements: number };

const databaseUrl = process.env.DATABASE_URL ?? '';
let statements = 0;
let rssBytes = 0;
const sql = connect(databaseUrl, { max: 4, applicationName: 'export-process', onStatement: () => statements++ });
const boss = await startQueue({ databaseUrl, supervise: false, log: silent });
const config = loadConfig({ DATABASE_URL: databaseUrl });
const server = await startServer(createApp({ sql, boss, config, log: silent }), { host: '127.0.0.1', port: 0 });
// The most there was since the last question.
setInterval(() => {
  rssBytes = Math.max(rssBytes, process.memoryUsage.rss());
}, 10);
process.on('message', () => {
  process.send?.({ rssBytes: Math.max(rssBytes, process.memoryUsage.rss()), statements } satisfies Usage);
  rssBytes = 0;
});
process.send?.((server.address() as AddressInfo).port);
