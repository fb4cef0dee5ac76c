import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Temporary files of this process go to a folder of its own, so that a test can say what is left there. */
export function ownTemporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sheaf-test-'));
  process.env.TMPDIR = folder;
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
