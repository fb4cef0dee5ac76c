import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import type { Sql } from '../src/db.ts';

/** What a server has used so far: processor time of all its processes, and the memory that is theirs alone. */
export type ServerUsage = { cpuMs: number; memoryBytes: number };

const UNKNOWN: ServerUsage = { cpuMs: Number.NaN, memoryBytes: Number.NaN };

/** The first process of the PostgreSQL server, or undefined if it is not on this machine or this is no Linux. */
export async function findServer(sql: Sql): Promise<number | undefined> {
  const [row] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid`;
  const stat = row && readStat(row.pid);
  return stat !== undefined && stat.name === 'postgres' ? stat.parent : undefined;
}

/**
 * Of a server and its child processes. What has ended is in it too: the time of children that were waited for is their
 * parent's. Memory is what each process has for itself, without what they share.
 */
export function serverUsage(pid: number | undefined): ServerUsage {
  const first = pid === undefined ? undefined : readStat(pid);
  if (pid === undefined || first === undefined) return UNKNOWN;
  const children = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readStat(Number(name)))
    .filter((stat) => stat !== undefined && stat.parent === pid);
  const ticks = children.reduce((sum, stat) => sum + (stat?.ownTicks ?? 0), first.ownTicks + first.childTicks);
  const memoryBytes = [first, ...children].reduce((sum, stat) => sum + privateBytes(stat?.pid ?? 0), 0);
  return { cpuMs: (ticks / ticksPerSecond()) * 1000, memoryBytes };
}

type Stat = { pid: number; name: string; parent: number; ownTicks: number; childTicks: number };

/** proc(5): the name stands in parentheses and may hold spaces; the fields are counted from behind it. */
function readStat(pid: number): Stat | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const end = text.lastIndexOf(')');
    const fields = text.slice(end + 2).split(' ');
    const ticks = (at: number): number => Number(fields[at] ?? 0);
    return {
      pid,
      name: text.slice(text.indexOf('(') + 1, end),
      parent: ticks(1),
      ownTicks: ticks(11) + ticks(12),
      childTicks: ticks(13) + ticks(14),
    };
  } catch {
    return undefined;
  }
}

function privateBytes(pid: number): number {
  try {
    const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
    const lines = rollup.matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB$/gm);
    return [...lines].reduce((sum, [, kilobytes]) => sum + Number(kilobytes) * 1024, 0);
  } catch {
    // Ended meanwhile, or not ours to look at.
    return 0;
  }
}

let perSecond: number | undefined;

function ticksPerSecond(): number {
  perSecond ??= Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }));
  return perSecond;
}
