import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Complaint, explain, repository } from '../cli.ts';
import { dataDirectory, home, passwordFile } from './places.ts';
import { isAlive } from './processes.ts';
import { elsewhere, type Programs } from './programs.ts';

/** Makes `.data`. Where root makes it, the repository's owner may go on with it, and the server's user may pass. */
export async function prepareHome(): Promise<void> {
  await mkdir(home, { recursive: true });
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = await stat(repository);
  await chown(home, uid, gid);
  await chmod(home, 0o755);
}

/**
 * Makes the data directory if there is none. It is made beside its place and moved there when complete, so a set-up that was
 * killed leaves nothing that looks like data, and of two at once the second finds the place taken.
 */
export async function prepareData(programs: Programs): Promise<void> {
  await removeDrafts();
  if (existsSync(dataDirectory)) return await checkData(programs);
  process.stderr.write('setting up a PostgreSQL of our own in .data/postgres\n');
  const draft = `${dataDirectory}.new.${process.pid}`;
  const draftPassword = `${draft}.password`;
  await mkdir(draft, { mode: 0o700 });
  await writeFile(draftPassword, randomBytes(18).toString('base64url'), { mode: 0o600 });
  if (programs.owner) {
    for (const path of [draft, draftPassword]) await chown(path, programs.owner.uid, programs.owner.gid);
  }
  // The builtin locale sorts by code point and knows all of Unicode's letters, the same on every platform.
  const { file, args, options } = programs.command('initdb', [
    `--pgdata=${draft}`,
    '--username=postgres',
    `--pwfile=${draftPassword}`,
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    '--locale=C',
    '--locale-provider=builtin',
    '--builtin-locale=C.UTF-8',
  ]);
  const made = spawnSync(file, args, { ...options, encoding: 'utf8' });
  if (made.status !== 0) {
    const reason = made.error ? explain(made.error) : String(made.stderr).trim();
    throw new Complaint(`PostgreSQL's data directory could not be set up: ${reason}\n${elsewhere}`);
  }
  await rename(draftPassword, join(draft, 'sheaf.password'));
  await rename(draft, dataDirectory).catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    await rm(draft, { recursive: true });
  });
}

async function checkData(programs: Programs): Promise<void> {
  const again = 'Start afresh with `make reset`, which deletes it';
  const { uid } = await stat(dataDirectory);
  const expected = programs.owner?.uid ?? process.getuid?.();
  if (expected !== undefined && uid !== expected) {
    throw new Complaint(
      `${dataDirectory} belongs to the user with id ${uid} and not to ${expected}: ` +
        `work as that user, or let root give it away (chown -R ${expected}). ${again}.`,
    );
  }
  const version = await readFile(join(dataDirectory, 'PG_VERSION'), 'utf8').then(
    (text) => text.trim(),
    () => undefined,
  );
  if (version === undefined || !existsSync(passwordFile)) {
    throw new Complaint(`${dataDirectory} is not a data directory that Sheaf made. ${again}.`);
  }
  if (version !== programs.majorVersion) {
    throw new Complaint(
      `${dataDirectory} was made by PostgreSQL ${version}, and the one installed is ${programs.majorVersion}. ${again}, ` +
        `or dump it with version ${version} first.`,
    );
  }
}

/** Removes what set-ups that were killed have left. */
async function removeDrafts(): Promise<void> {
  for (const name of await readdir(home)) {
    const pid = Number(/^postgres\.new\.(\d+)/.exec(name)?.[1]);
    if (pid && (pid === process.pid || !isAlive(pid))) await rm(join(home, name), { recursive: true, force: true });
  }
}
