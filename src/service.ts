import { randomBytes } from 'node:crypto';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { hostname } from 'node:os';
import type { Config } from './config.ts';
import { connect } from './db.ts';
import { createEngine } from './engine.ts';
import { startHub } from './events/hub.ts';
import { HUB_LIMITS } from './events/hub-limits.ts';
import { createPublisher } from './events/publisher.ts';
import type { ExtractionEngine } from './extraction/engine.ts';
import { createApp } from './http/app.ts';
import { startServer } from './http/server.ts';
import { watchedTaskReader } from './http/watched-task.ts';
import { createLogger, describeError } from './log.ts';
import { MODES } from './modes.ts';
import { createPermits } from './permits/permits.ts';
import { type JobLimits, startQueue } from './queue.ts';
import { coalesce, listenWake, notifyWake } from './wake.ts';
import { startAggregator } from './workers/aggregator.ts';
import { startConsumer } from './workers/consumer.ts';
import { startFanoutSweeper } from './workers/fanout-sweeper.ts';
import { startManager } from './workers/manager.ts';
import { startRetention } from './workers/retention.ts';

export type Service = {
  /** Where the API listens, if this process has that role. */
  url: string | undefined;
  /** Takes no new work, ends or hands back what runs, closes the connections. */
  stop(): Promise<void>;
};

/** What a process may bring along instead of what the configuration makes. */
export type ServiceParts = {
  /** Reads the papers. Default: the embedded engine. */
  engine?: ExtractionEngine;
  /** Told of every statement of ours just before it is sent: for watching, and for dying at a named point in tests. */
  onStatement?: (text: string) => void;
};

/** Settles of one process within this time are one word to the aggregator. */
const SETTLED_WORD_MS = 200;

/** Wires the roles that the configuration names. Each stands alone: apart, they find each other through PostgreSQL only. */
export async function startService(config: Config, parts: ServiceParts = {}): Promise<Service> {
  const worker = `${hostname()}:${process.pid}:${randomBytes(3).toString('hex')}`;
  const log = createLogger({ level: config.logLevel }).child({ worker });
  const sql = connect(config.databaseUrl, {
    max: config.databasePoolSize,
    applicationName: 'sheaf',
    silenceMs: config.databaseSilenceMs,
    onStatement: parts.onStatement,
  });
  const boss = await startQueue({
    databaseUrl: config.databaseUrl,
    silenceMs: config.databaseSilenceMs,
    monitorSeconds: config.queueMonitorSeconds,
    supervise: config.roles.has('aggregator'),
    log,
  });
  const { jobExpirySeconds, heartbeatSeconds, maxAttempts } = config;
  const limits: JobLimits = { jobExpirySeconds, heartbeatSeconds, maxAttempts };
  /** How to stop what was started, last started first. */
  const stops: (() => Promise<unknown>)[] = [() => sql.end({ timeout: 5 }), () => boss.stop({ graceful: false })];

  if (config.roles.has('aggregator')) {
    const { aggregatorIntervalMs: intervalMs, staleAfterMs } = config;
    const aggregators = Object.values(MODES).map((mode) =>
      startAggregator({ mode, sql, boss, intervalMs, staleAfterMs, worker, log }),
    );
    await listenWake(sql, 'asl_settled', () => {
      for (const aggregator of aggregators) aggregator.wake();
    });
    stops.push(() => Promise.all(aggregators.map((aggregator) => aggregator.stop())));
    stops.push(await startFanoutSweeper({ sql, boss, log }));
    if (config.retentionMs !== undefined) {
      const retention = startRetention({ sql, retentionMs: config.retentionMs, log });
      stops.push(() => retention.stop());
    }
  }

  if (config.roles.has('worker')) {
    const permits = createPermits({ sql, holder: worker, log });
    stops.push(() => permits.close());
    const engine = parts.engine ?? createEngine(config, { sql, gatekeeper: permits });
    const sayWord = coalesce(SETTLED_WORD_MS, () => {
      notifyWake(sql, 'asl_settled').catch((error) => log.debug('no word sent', { error: describeError(error) }));
    });
    const { workerSlots: slots, pollIntervalMs, extractionTimeoutMs, retryDelayMs, retryDelayMaxMs } = config;
    const timing = { pollIntervalMs, extractionTimeoutMs, retryDelayMs, retryDelayMaxMs };
    const publisher = createPublisher({ sql, log });
    stops.push(() => publisher.close());
    const modes = Object.values(MODES);
    const told = { onSettled: sayWord, publish: publisher.publish };
    const consumer = startConsumer({ sql, boss, engine, limits, modes, slots, ...timing, worker, log, ...told });
    const manager = startManager({ sql, boss, limits, pollIntervalMs, log });
    await listenWake(sql, 'asl_jobs', () => {
      manager.wake();
      consumer.wake();
    });
    await listenWake(sql, 'asl_stopped', () => consumer.check());
    stops.push(async () => {
      await Promise.all([manager.stop(), consumer.stop(config.shutdownGraceMs)]);
      await engine.close();
    });
  }

  let url: string | undefined;
  let draining = false;
  if (config.roles.has('api')) {
    // Our own word comes before a connection that hears none is given up.
    const hubLimits = { markMs: Math.min(HUB_LIMITS.markMs, config.databaseSilenceMs / 3) };
    const hub = await startHub({ sql, read: watchedTaskReader(sql), log, limits: hubLimits });
    const app = createApp({ sql, boss, config, log, hub, isReady: () => !draining });
    const server = await startServer(app, config);
    url = urlOf(server.address() as AddressInfo);
    stops.push(() => {
      // Streams end only when they are told to, and nobody needs them to the last second.
      hub.close();
      return closeServer(server, config.shutdownGraceMs);
    });
  }

  log.info('started', { roles: [...config.roles].join(','), url });
  return {
    url,
    async stop() {
      log.info('stopping');
      draining = true;
      for (const stop of stops.reverse()) await stop();
      log.info('stopped');
    },
  };
}

function urlOf({ family, address, port }: AddressInfo): string {
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

/** Takes no new connection, lets requests in flight end, and after `graceMs` waits no longer. */
async function closeServer(server: Server, graceMs: number): Promise<void> {
  const timer = setTimeout(() => server.closeAllConnections(), graceMs);
  await new Promise((closed) => {
    server.close(closed);
    server.closeIdleConnections();
  });
  clearTimeout(timer);
}
