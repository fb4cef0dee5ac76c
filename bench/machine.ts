import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { arch, cpus, platform, totalmem } from 'node:os';
import { join } from 'node:path';
import type { Sql } from '../src/db.ts';

/** The machine and the versions that a figure stands for, in a few lines. */
export async function describeMachine(sql: Sql): Promise<string[]> {
  const [server] = await sql<{ version: string; commit: string; fsync: string; buffers: string }[]>`
    select
      current_setting('server_version') as version,
      current_setting('synchronous_commit') as commit,
      current_setting('fsync') as fsync,
      current_setting('shared_buffers') as buffers`;
  const processor = cpus()[0]?.model.trim() ?? 'unknown processor';
  const memory = Math.round(totalmem() / 2 ** 30);
  const packages = ['pg-boss', 'postgres', 'graphile-worker', 'bullmq'].map((name) => `${name} ${versionOf(name)}`);
  return [
    `${new Date().toISOString().slice(0, 10)}; ${cpus().length} × ${processor}, ${memory} GB, ${platform()} ${arch()}`,
    `Node ${process.version}, ${packages.join(', ')}`,
    `PostgreSQL ${server?.version} (synchronous_commit ${server?.commit}, fsync ${server?.fsync}, shared_buffers ${server?.buffers})`,
  ];
}

/** From the package's own package.json, which not every package lets others import. */
function versionOf(name: string): string {
  const require = createRequire(import.meta.url);
  for (const folder of require.resolve.paths(name) ?? []) {
    try {
      const { version } = JSON.parse(readFileSync(join(folder, name, 'package.json'), 'utf8')) as { version: string };
      return version;
    } catch {}
  }
  return 'absent';
}
