import { existsSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describeError } from '../src/log.ts';

/** The root of the repository, whatever the working directory. */
export const repository = fileURLToPath(new URL('..', import.meta.url));

/** A fault that the person at the prompt can mend: its message is all they need to read. */
export class Complaint extends Error {
  override readonly name = 'Complaint';
}

/** Whether the module was started by itself, and not imported. `import.meta.main` is younger than the Node we allow. */
export function isMain(moduleUrl: string): boolean {
  const started = process.argv[1];
  return started !== undefined && existsSync(started) && realpathSync(started) === fileURLToPath(moduleUrl);
}

/** Runs a script to its exit code. A failure ends as a sentence on standard error, never as a bare stack. */
export async function runScript(main: () => Promise<number>): Promise<never> {
  const fail = (error: unknown): never => {
    process.stderr.write(`${explain(error)}\n`);
    process.exit(1);
  };
  // postgres.js leaves one uncaught when a connection breaks in its first moments.
  process.on('unhandledRejection', fail);
  try {
    process.exit(await main());
  } catch (error) {
    return fail(error);
  }
}

/** Takes what `.env` says into the environment, which wins where both name a variable. */
export function loadDotEnv(): void {
  const path = join(repository, '.env');
  if (existsSync(path)) process.loadEnvFile(path);
}

/** The URL that the script works on: scripts/run.ts sees to it. */
export function requireDatabaseUrl(): string {
  const url = process.env.DATABASE_URL;
  if (!url)
    throw new Complaint('DATABASE_URL is not set: use the make targets, or set it to a PostgreSQL connection URL');
  if (!URL.canParse(url))
    throw new Complaint('DATABASE_URL is not a URL: it reads like postgres://user:password@host/database');
  return url;
}

/** An error as the sentence to print. A refused connection is an AggregateError without words of its own. */
export function explain(error: unknown): string {
  if (error instanceof Complaint) return error.message;
  if (error instanceof AggregateError && error.errors.length > 0) return error.errors.map(describeError).join('; ');
  if (process.env.DEBUG && error instanceof Error) return error.stack ?? error.message;
  return describeError(error);
}
