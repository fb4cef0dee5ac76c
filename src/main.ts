import { existsSync } from 'node:fs';
import { ConfigError, loadConfig } from './config.ts';
import { describeError } from './log.ts';
import { startService } from './service.ts';

/** Starts the service with the roles of its configuration; SIGTERM and SIGINT drain it, a second one leaves at once. */
async function main(): Promise<void> {
  if (existsSync('.env')) process.loadEnvFile('.env');
  const config = loadConfig();
  const service = await startService(config);
  if (service.url !== undefined) process.stdout.write(`Sheaf listens on ${service.url}\n`);
  else process.stdout.write(`Sheaf runs as ${[...config.roles].join(', ')}\n`);

  let stopping = false;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      if (stopping) process.exit(1);
      stopping = true;
      service.stop().then(
        () => process.exit(0),
        (error: unknown) => {
          process.stderr.write(`stopping failed: ${describeError(error)}\n`);
          process.exit(1);
        },
      );
    });
  }
}

main().catch((error: unknown) => {
  process.stderr.write(
    `${error instanceof ConfigError ? error.message : `sheaf can't start: ${describeError(error)}`}\n`,
  );
  process.exit(1);
});
