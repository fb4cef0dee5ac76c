import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** Real papers, which are no part of the repository: SHEAF_CORPUS, or a folder beside the checkout. */
const CORPUS = process.env.SHEAF_CORPUS || fileURLToPath(new URL('../../../shared/corpus', import.meta.url));

/** For `test(name, skipWithoutCorpus, …)`. */
export const skipWithoutCorpus = {
  skip: existsSync(CORPUS) ? false : `no corpus of real papers at ${CORPUS}: set SHEAF_CORPUS to run this`,
};

/** Where a file of the corpus lies; `name` is its folder and file. */
export function corpusPath(name: string): string {
  return `${CORPUS}/${name}`;
}

export function corpusFile(name: string): Uint8Array {
  return new Uint8Array(readFileSync(corpusPath(name)));
}

/** The names of one folder's files, sorted; none where there is no corpus. */
export function corpusFiles(folder: string): string[] {
  return existsSync(corpusPath(folder)) ? readdirSync(corpusPath(folder)).sort() : [];
}

/** The registration numbers of the papers in `text/`, as the articles' own metadata have them; empty: none. */
export function goldRegistrations(): { file: string; number: string; standsInText: boolean }[] {
  const [, ...rows] = new TextDecoder().decode(corpusFile('gold/registration.csv')).trim().split(/\r?\n/);
  return rows.map((row) => {
    const [file = '', number = '', standsInText] = row.split(',');
    return { file, number, standsInText: standsInText === 'yes' };
  });
}
