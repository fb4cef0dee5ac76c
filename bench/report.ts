/** A table as README can quote it. */
export type Table = { title: string; columns: readonly string[]; rows: readonly (readonly string[])[] };

/** What the project has promised, what this run has measured, and whether it holds. */
export type Target = { what: string; wanted: string; measured: string; met: boolean };

export function say(line = ''): void {
  process.stdout.write(`${line}\n`);
}

/** For whoever waits at a prompt; standard output is the report alone. */
export function sayProgress(line: string): void {
  process.stderr.write(`  ${line}\n`);
}

/** Prints a markdown table; the first column holds words, the others numbers. */
export function sayTable({ title, columns, rows }: Table): void {
  say(`\n**${title}**\n`);
  say(`| ${columns.join(' | ')} |`);
  say(`|${columns.map((_, i) => (i === 0 ? '---' : '---:')).join('|')}|`);
  for (const row of rows) say(`| ${row.join(' | ')} |`);
}

export function sayTargets(targets: readonly Target[]): void {
  if (targets.length === 0) return;
  const rows = targets.map(({ what, wanted, measured, met }) => [what, wanted, measured, met ? 'yes' : '**no**']);
  sayTable({ title: 'Targets', columns: ['what', 'wanted', 'measured', 'met'], rows });
}
