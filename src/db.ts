import { Socket } from 'node:net';
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
  /**
   * A connection on which nothing has moved for this long is given up, also while a statement runs: a server or a network
   * that went away without a word would otherwise hold whoever asked for ever. Longer than any statement of ours takes.
   */
  silenceMs?: number | undefined;
  /** Told of every statement just before it is sent. */
  onStatement?: ((text: string) => void) | undefined;
};

/** Opens a lazy pool: nothing connects before the first statement. */
export function connect(databaseUrl: string, options: ConnectOptions): Sql {
  const { silenceMs, onStatement } = options;
  return postgres(databaseUrl, {
    max: options.max,
    connect_timeout: 10,
    // Seconds before a connection that failed is tried again. The driver's own rule comes to twenty after a short outage.
    backoff: (failures: number) => Math.min(1, 0.05 * 2 ** failures),
    connection: {
      application_name: options.applicationName,
      // Every statement rides on an index. A plan that was made while a table was small is kept for a while when it has grown:
      // then it must not walk through all of it. With seq scans so dear, a plan for a table of ten rows would seem worth compiling.
      enable_seqscan: 'off',
      jit: 'off',
      // A process that stops in mid-transaction, alive but silent, must not keep its locks from everybody else.
      idle_in_transaction_session_timeout: 10_000,
      // The server finds out within a minute that a client is gone without a word, and frees its locks.
      tcp_keepalives_idle: 30,
      tcp_keepalives_interval: 10,
      tcp_keepalives_count: 3,
    },
    // "relation already exists, skipping" and its kind are for people at a prompt.
    onnotice: () => {},
    ...(onStatement ? { debug: (_connection: number, text: string) => onStatement(text) } : {}),
    ...(silenceMs ? { socket: (target: Target) => openSocket(target, silenceMs) } : {}),
  } as postgres.Options<Record<string, never>>) as Sql;
}

/** Where the driver wants to connect to: a path for a Unix socket, else the first of its hosts. */
type Target = { path?: string | undefined; host: string[]; port: number[] };

/** Not awaited: the driver writes its greeting at once, and hears of a refusal as of any other error of the socket. */
function openSocket({ path, host, port }: Target, silenceMs: number): Socket {
  const socket = new WatchedSocket();
  socket.setTimeout(silenceMs);
  if (path) return socket.connect(path);
  return socket.connect({ host: host[0] ?? 'localhost', port: port[0] ?? 5432 });
}

/** Ends itself when it times out. Not by a listener: the driver removes all of them when it goes on to TLS. */
class WatchedSocket extends Socket {
  override emit(event: string | symbol, ...args: unknown[]): boolean {
    // Without an error, as if the server had closed it: an idle connection ends this way too, and that is no failure. But one
    // on which no word ever came has failed: the driver would try again for ever, and its statement never hear of it.
    if (event === 'timeout') this.destroy(this.bytesRead === 0 ? noAnswer() : undefined);
    return super.emit(event as 'timeout', ...(args as []));
  }
}

function noAnswer(): Error {
  return Object.assign(new Error('the database does not answer'), { code: 'ETIMEDOUT' });
}

/**
 * The one door to a transaction: commits what `body` did, or nothing if it throws. No I/O to anyone else belongs inside, and
 * an SQL error inside is never caught to go on: the transaction is lost by then.
 *
 * A transaction that PostgreSQL ended as a deadlock's victim is run again, so `body` must do nothing but SQL.
 */
export async function inTransaction<T>(sql: Sql, body: (tx: Tx) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return (await sql.begin(body)) as T;
    } catch (error) {
      if (sqlState(error) !== '40P01' || tries === 3) throw error;
    }
  }
}

/** The five-character SQLSTATE of a PostgreSQL error, or undefined for any other error. */
export function sqlState(error: unknown): string | undefined {
  return error instanceof postgres.PostgresError ? error.code : undefined;
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

/**
 * Whether the same statement may succeed in a while: the database was away, another transaction was in the way, or the server
 * was short of something (class 53) or read-only, as a standby is until its failover is over.
 */
export function isWorthAnotherTry(error: unknown): boolean {
  // Serialization failures and deadlocks, a lock not available, a statement cancelled by a time-out.
  return isDatabaseAway(error) || /^(40...|53...|25006|25P03|55P03|57014)$/.test(sqlState(error) ?? '');
}

/** Whether PostgreSQL refuses the values themselves (class 22, 54000 and its kind): another try would fail the same way. */
export function isRefusedValue(error: unknown): boolean {
  return /^(22...|54...)$/.test(sqlState(error) ?? '');
}
