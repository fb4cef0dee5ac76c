import { readFileSync } from 'node:fs';

/** Whether a process runs. */
export function isAlive(pid: number): boolean {
  // A zombie (Z) has ended, though nobody has collected it.
  return hasId(pid) && !/\) [ZX]/.test(readStat(pid) ?? '');
}

/** Whether the id is taken, be it by a zombie. */
export function hasId(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Linux's line on a process: id, name in parentheses, state. Undefined where there is no such process or no /proc. */
export function readStat(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return undefined;
  }
}
