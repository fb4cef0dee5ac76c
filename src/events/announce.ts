import type { Sql, Tx } from '../db.ts';
import { toPayloads } from './payload.ts';
import { EVENT_CHANNEL, type ResultEvent } from './task-event.ts';

/**
 * Says of these tasks that they have changed as a whole. Inside a transaction, at its commit; one statement, whatever their
 * number, and none for an empty list.
 *
 * NOTIFY takes a lock of the whole database at commit. That is nothing for the few transactions that end a task or a user
 * asks for, and too much for each settle of a result: see publisher.ts.
 */
export async function announceTasks(sql: Sql | Tx, taskIds: readonly string[]): Promise<void> {
  await sendPayloads(sql, toPayloads(taskIds.map((taskId) => ({ type: 'task', taskId }))));
}

/** The same for up to some thousand results that one transaction has changed. */
export async function announceResults(sql: Sql | Tx, events: readonly ResultEvent[]): Promise<void> {
  await sendPayloads(sql, toPayloads(events));
}

/** Sends payloads in their order. */
export async function sendPayloads(sql: Sql | Tx, payloads: readonly string[]): Promise<void> {
  if (payloads.length === 0) return;
  await sql`
    select pg_notify(${EVENT_CHANNEL}, payload)
    from unnest(${payloads as string[]}::text[]) payload`;
}
