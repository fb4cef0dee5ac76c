import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { migrateDatabase } from '../../scripts/migrate.ts';
import { connect } from '../../src/db.ts';
import { createPublisher } from '../../src/events/publisher.ts';
import { startQueue } from '../../src/queue.ts';
import { openStream } from '../support/event-stream.ts';
import { makeTask, silent } from '../support/fixtures.ts';
import { ownServer } from '../support/postgres-server.ts';
import { startProcess } from '../support/process.ts';
import { until } from '../support/waiting.ts';

const server = await ownServer();
await server.start();
const databaseUrl = new URL('/sheaf', server.url).href;
await migrateDatabase(databaseUrl);
const sql = connect(databaseUrl, { max: 3, applicationName: 'sheaf-test' });
const boss = await startQueue({ databaseUrl, supervise: false, log: silent });
after(async () => {
  await boss.stop({ graceful: false });
  await sql.end({ timeout: 1 });
  await server.remove();
});

for (const how of ['fast', 'immediate'] as const) {
  test(`streams outlive a database that stops (${how}), and begin anew when it is back, since words may have been lost`, async () => {
    const { url, stop } = await startProcess(databaseUrl, { ROLES: 'api' });
    const { taskId } = await makeTask({ sql, boss, url: databaseUrl, name: 'sheaf' }, 1);
    const publisher = createPublisher({ sql, log: silent });
    const path = `${url}/tasks/${taskId}/events`;
    const stream = await openStream(path);
    await stream.untilEvent('snapshot');

    await server.stop(how);
    await until('a refusal', async () => {
      const response = await fetch(path);
      await response.body?.cancel();
      return response.status === 503;
    });
    // It is sent when the database is back, which may be before the service listens again.
    publisher.publish({ type: 'log', taskId, level: 'warn', message: 'said meanwhile' });
    assert.equal(stream.ended(), false);
    await server.start();

    const again = await stream.untilEvent('snapshot', 2);
    assert.equal(again.data.resumed, false);
    publisher.publish({ type: 'log', taskId, level: 'info', message: 'said later' });
    await until('a word of later', () => stream.of('log').some(({ data }) => data.message === 'said later'));
    assert.equal(stream.ended(), false);
    await publisher.close();
    assert.equal(await stop(), 0);
  });
}
