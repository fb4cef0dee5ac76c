import postgres from 'postgres';

/** The pool: each statement on a connection of its own choosing. */
export type Sql = postgres.Sql;
/** One connection inside an open transaction. */
export type Tx = postgres.TransactionSql;

export type ConnectOptions = {
  /** Most connections at a time. */
  max: number;
  /** Shown in pg_stat_activity. */
  applicationName: string;
};

/** Opens a lazy pool: nothing connects before the first statement. */
export function connect(databaseUrl: string, options: ConnectOptions): Sql {
  return postgres(databaseUrl, {
    max: options.max,
    connect_timeout: 10,
    connection: { application_name: options.applicationName },
    // "relation already exists, skipping" and its kind are for people at a prompt.
    onnotice: () => {},
  });
}

/**
 * The one door to a transaction: commits what `body` did, or nothing if it throws. No I/O to anyone else belongs inside, and
 * an SQL error inside is never caught to go on: the transaction is lost by then.
 */
export async function inTransaction<T>(sql: Sql, body: (tx: Tx) => Promise<T>): Promise<T> {
  return (await sql.begin(body)) as T;
}

/** The five-character SQLSTATE of a PostgreSQL error, or undefined for any other error. */
export function sqlState(error: unknown): string | undefined {
  return error instanceof postgres.PostgresError ? error.code : undefined;
}

/** The name of the constraint that an error is about, if it is about one. */
export function violatedConstraint(error: unknown): string | undefined {
  return error instanceof postgres.PostgresError ? error.constraint_name : undefined;
}

const CONNECTION_CODES = new Set([
  'CONNECTION_CLOSED',
  'CONNECTION_ENDED',
  'CONNECTION_DESTROYED',
  'CONNECT_TIMEOUT',
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ENOTFOUND',
  'EHOSTUNREACH',
  'ETIMEDOUT',
]);

/**
 * Whether the database was away rather than the statement wrong: the connection could not be made or broke (class 08), the
 * server is shutting down or starting (57P01-57P03), or has no place left for one more (53300).
 */
export function isDatabaseAway(error: unknown): boolean {
  const code = (error as { code?: unknown } | null)?.code;
  if (typeof code !== 'string') return error instanceof AggregateError && error.errors.some(isDatabaseAway);
  return CONNECTION_CODES.has(code) || /^(08...|57P0[1-3]|53300)$/.test(code);
}

/** Whether the same statement may succeed in a moment: the database was away, or another transaction was in the way. */
export function isWorthAnotherTry(error: unknown): boolean {
  // Serialization failures and deadlocks, a lock not available, a statement cancelled by a time-out.
  return isDatabaseAway(error) || /^(40...|55P03|57014)$/.test(sqlState(error) ?? '');
}

/** Whether PostgreSQL refuses the values themselves (class 22, 54000 and its kind): another try would fail the same way. */
export function isRefusedValue(error: unknown): boolean {
  return /^(22...|54...)$/.test(sqlState(error) ?? '');
}
