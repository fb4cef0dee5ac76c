import type { Sql } from './db.ts';

/**
 * Ends sessions of ours whose process has stopped in mid-conversation: alive for the network, silent for so long, and with a
 * transaction that holds its locks. Answers how many.
 *
 * `idle_in_transaction_session_timeout` ends those that stopped between two statements. But between the parts of one, as when
 * its parameters' types have been asked for and the parameters not sent yet, PostgreSQL takes a session for active, and waits
 * without any limit that version 15 knows. A COPY waits for its data in the same way, and is left alone.
 *
 * A statement whose parameters take longer than this on their way is ended too: a hundred megabytes on a line of 5 MB a second.
 */
export async function endSilentSessions(sql: Sql, silentMs: number): Promise<number> {
  const ended = await sql`
    select pg_terminate_backend(pid)
    from pg_stat_activity
    where datname = current_database()
      and usename = current_user
      and application_name = 'sheaf'
      and state = 'active'
      and wait_event = 'ClientRead'
      and state_change < now() - make_interval(secs => ${silentMs / 1000})
      and query !~* '^\\s*copy'
      and pid <> pg_backend_pid()`;
  return ended.count;
}
