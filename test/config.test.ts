import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { ConfigError, loadConfig } from '../src/config.ts';

const DATABASE_URL = 'postgres://localhost/sheaf';

function faultsOf(env: Record<string, string>): readonly string[] {
  try {
    loadConfig(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.faults;
    throw error;
  }
  return [];
}

test('a database is all that has to be said', () => {
  const config = loadConfig({ DATABASE_URL });
  assert.deepEqual([config.host, config.port, config.workerSlots], ['127.0.0.1', 8080, 10]);
  assert.deepEqual([...config.roles], ['api', 'worker', 'aggregator']);
});

test('every fault is named at once, and no value is repeated', () => {
  const faults = faultsOf({
    DATABASE_URL: 'mysql://root:secret@localhost',
    PORT: '99999',
    WORKER_SLOTS: 'ten',
    ROLES: 'api,king',
  });
  assert.deepEqual(
    faults.map((fault) => fault.split(' ')[0]),
    ['DATABASE_URL', 'PORT', 'ROLES.1', 'WORKER_SLOTS'],
  );
  assert.ok(!faults.join().includes('secret'));
});

test('a missing database is said to be missing', () => {
  assert.deepEqual(faultsOf({}), ['DATABASE_URL is not set']);
  assert.deepEqual(faultsOf({ DATABASE_URL: '' }), ['DATABASE_URL is not set']);
});

test('limits in an order that makes no sense are refused', () => {
  const wrong = { JOB_EXPIRY_SECONDS: '3600', STALE_AFTER_SECONDS: '1800', EXTRACTION_TIMEOUT_SECONDS: '7200' };
  assert.deepEqual(faultsOf({ DATABASE_URL, ...wrong }), [
    'EXTRACTION_TIMEOUT_SECONDS must not be more than JOB_EXPIRY_SECONDS',
    'JOB_EXPIRY_SECONDS must not be more than STALE_AFTER_SECONDS',
  ]);
  assert.deepEqual(faultsOf({ DATABASE_URL, HEARTBEAT_SECONDS: '30', TAKEOVER_SECONDS: '30' }), [
    'TAKEOVER_SECONDS must be at least 2 more than HEARTBEAT_SECONDS',
  ]);
  assert.deepEqual(faultsOf({ DATABASE_URL, TAKEOVER_SECONDS: '1800' }), [
    'TAKEOVER_SECONDS must be less than JOB_EXPIRY_SECONDS',
  ]);
});

test('.env.example names every variable, with the value that it has when it is left out', async () => {
  const example = await readFile(new URL('../.env.example', import.meta.url), 'utf8');
  const shown = Object.fromEntries(
    [...example.matchAll(/^#([A-Z_]+)=(.*)$/gm)].map(([, name, value]) => [name, value]),
  );
  const source = await readFile(new URL('../src/config.ts', import.meta.url), 'utf8');
  const names = [...source.matchAll(/^ {2}([A-Z_]+): (v\.|integer|url|word|price)/gm)].map(
    ([, name]) => name as string,
  );
  assert.ok(names.length > 20);
  for (const name of names) assert.ok(name in shown, `${name} is missing`);
  const { DATABASE_URL: _, TEST_DATABASE_URL: __, ENGINE_THREADS: ___, ...rest } = shown;
  assert.deepEqual(loadConfig({ DATABASE_URL, ...rest }), loadConfig({ DATABASE_URL }));
});
