// Mends three faults of postgres 3.4.9 that no caller can catch or work around. Runs after every install, on whatever Node npm
// runs on; does nothing a second time, and fails if the driver is not the one it knows.
//
// 1. A transaction whose connection has died goes on to send its rollback there. The connection has no socket any more, which
//    ends the process (porsager/postgres issues 1066, 1154 and 1208; no release has a repair), or has been given to somebody
//    else, whose transaction is then rolled back, or hangs. Here a dead transaction sends nothing.
// 2. The driver's own first query on a connection, for the array types, is awaited by nobody when it fails, which ends the
//    process too. The statement that wanted the connection fails as well, and that one is its caller's to catch.
// 3. A connection that closes keeps the statements it was at, and the server's last word ("terminating connection"). When it is
//    opened again, the next statement gets that error, or waits for ever behind the dead ones.
import { readFileSync, writeFileSync } from 'node:fs';

const driver = new URL('../node_modules/postgres/src/', import.meta.url);

const repairs = [
  {
    file: 'index.js',
    from: `        new Promise((_, reject) => connection.onclose = reject)
`,
    to: `        new Promise((_, reject) => connection.onclose = e => reject(gone = e))
`,
  },
  {
    file: 'index.js',
    from: `      , prepare = null

    try {
      await sql.unsafe('begin '`,
    to: `      , prepare = null
      , gone = null

    try {
      await sql.unsafe('begin '`,
  },
  {
    file: 'index.js',
    from: `        q.catch(e => uncaughtError || (uncaughtError = e))
`,
    to: `        q.catch(e => uncaughtError || (uncaughtError = e))
        if (gone)
          return q.reject(gone)
`,
  },
  {
    file: 'connection.js',
    from: `        return fetchArrayTypes()
`,
    to: `        return fetchArrayTypes().catch(() => { /* its caller's statement fails too */ })
`,
  },
  {
    file: 'connection.js',
    from: `    socket = null

    if (initial)
      return reconnect()

    !hadError && (query || sent.length) && error(Errors.connection('CONNECTION_CLOSED', options, socket))
`,
    to: `    socket = null
    errorResponse = results = null
    result = new Result()

    if (initial) {
      query && queryError(query, Errors.connection('CONNECTION_CLOSED', options, socket))
      query = null
      return reconnect()
    }

    if (query || sent.length)
      error(Errors.connection('CONNECTION_CLOSED', options, socket))
    query = null
`,
  },
];

for (const { file, from, to } of repairs) {
  const path = new URL(file, driver);
  const source = readFileSync(path, 'utf8');
  if (source.includes(to)) continue;
  if (source.split(from).length !== 2)
    throw new Error(`scripts/patch-driver.mjs does not know this ${file} of postgres`);
  writeFileSync(
    path,
    source.replace(from, () => to),
  );
}
