import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import {
  deleteDocument,
  getDocument,
  insertDocuments,
  listDocuments,
  type NewDocument,
  readContent,
} from '../../src/documents/document-store.ts';
import { keepParsedText, readParsedText } from '../../src/documents/parsed-text-store.ts';
import { openTestDatabase } from '../support/database.ts';
import { untilBlocked } from '../support/waiting.ts';

const { sql } = await openTestDatabase(import.meta.url);

function newDocument(content: Uint8Array | string, filename = 'paper.txt'): NewDocument {
  const bytes = Buffer.from(content as string);
  return {
    documentId: uuidv7(),
    filename,
    mediaType: 'text/plain',
    byteSize: bytes.length,
    sha256: createHash('sha256').update(bytes).digest('hex'),
    chunks: async function* () {
      for (let at = 0; at < bytes.length; at += 100_000) yield bytes.subarray(at, at + 100_000);
    },
  };
}

const insert = (projectId: string, ...documents: NewDocument[]) => insertDocuments(sql, { projectId, documents });
const idsIn = async (projectId: string) =>
  (await listDocuments(sql, { projectId, limit: 500 })).map((document) => document.documentId);

async function totals() {
  const [row] = await sql`
    select
      (select count(*)::int from asl_schema.document) as documents,
      (select count(*)::int from asl_schema.document_content) as contents`;
  return { ...row };
}

test('documents come back in the order in which they were given, with all that was said of them', async () => {
  const given = ['b', 'a', 'c'].map((content) => newDocument(content, `${content}.txt`));
  const stored = await insert('order', ...given);
  assert.deepEqual(
    stored.map(({ createdAt, ...document }) => document),
    given.map(({ chunks, ...document }) => ({ ...document, projectId: 'order' })),
  );
  assert.ok(stored.every(({ createdAt }) => createdAt instanceof Date));
  assert.deepEqual(
    await idsIn('order'),
    given.map(({ documentId }) => documentId),
  );
});

test('every byte comes back, of an empty document as of a large one', async () => {
  for (const size of [0, 1, 256 * 1024, 9 * 1024 * 1024 + 1]) {
    const content = randomBytes(size);
    const [document] = await insert('bytes', newDocument(content));
    const found = await getDocument(sql, document?.documentId ?? '');
    assert.deepEqual(found?.document, document);
    assert.ok(content.equals((await readContent(sql, found?.storageKey ?? '')) ?? Buffer.from('missing')), `${size}`);
  }
  assert.equal(await readContent(sql, 'no such key'), undefined);
});

test('a file name of any kind survives', async () => {
  const filename = `"quoted" \\ {braces}, 'ticks' null 研究 🧪.pdf`;
  const [document] = await insert('names', newDocument('x', filename));
  assert.equal(document?.filename, filename);
});

test('the same bytes twice in a project are one document, also within one call; another project has its own', async () => {
  const [first, second, third] = await insert('twice', newDocument('same'), newDocument('other'), newDocument('same'));
  assert.deepEqual(third, first);
  assert.notEqual(second?.documentId, first?.documentId);
  const [again] = await insert('twice', newDocument('same', 'renamed.txt'));
  assert.deepEqual(again, first);
  const [elsewhere] = await insert('twice-elsewhere', newDocument('same'));
  assert.notEqual(elsewhere?.documentId, first?.documentId);
  assert.equal((await idsIn('twice')).length, 2);
});

test('two uploads of the same files at the same moment, in another order, end as the same documents', async () => {
  const names = ['one', 'two', 'three', 'four'];
  const begun = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  const slow = names.map((name) => newDocument(name));
  const chunks = slow[0]?.chunks;
  (slow[0] as NewDocument).chunks = async function* () {
    begun.resolve();
    await held.promise;
    yield* chunks?.() ?? [];
  };
  const first = insert('race', ...slow);
  await begun.promise;
  const second = insert('race', ...names.toReversed().map((name) => newDocument(name)));
  await untilBlocked(sql, 'insert into asl_schema.document');
  held.resolve();
  assert.deepEqual((await second).toReversed(), await first);
  assert.equal((await idsIn('race')).length, 4);
});

test('a document deleted in the moment in which its bytes are sent again is stored anew', async () => {
  const [old] = await insert('revived', newDocument('revived'));
  const other = newDocument('other');
  const chunks = other.chunks;
  other.chunks = async function* () {
    assert.equal(await deleteDocument(sql, old?.documentId ?? ''), 'deleted');
    yield* chunks();
  };
  const [revived] = await insert('revived', newDocument('revived'), other);
  assert.notEqual(revived?.documentId, old?.documentId);
  assert.equal(Buffer.from((await readContent(sql, revived?.documentId ?? '')) ?? '').toString(), 'revived');
});

test('when one of many cannot be read, none is stored', async () => {
  const before = await totals();
  const broken = newDocument('broken');
  broken.chunks = async function* () {
    yield Buffer.from('bro');
    throw new Error('the disk is gone');
  };
  await assert.rejects(insert('broken', newDocument('fine'), broken), /the disk is gone/);
  const short = { ...newDocument('short'), byteSize: 4711 };
  await assert.rejects(insert('broken', newDocument('fine'), short));
  assert.deepEqual(await totals(), before);
});

test('when the database refuses the bytes at the very end, the upload fails instead of waiting for ever', async () => {
  const before = await totals();
  await sql`
    create function refuse() returns trigger language plpgsql as $$ begin raise 'disk full' using errcode = '53100'; end $$`;
  await sql`
    create trigger refuse after insert on asl_schema.document_content for each statement execute function refuse()`;
  try {
    await assert.rejects(insert('refused', newDocument('refused')));
  } finally {
    await sql`drop trigger refuse on asl_schema.document_content`;
  }
  assert.deepEqual(await totals(), before);
  assert.equal((await insert('refused', newDocument('refused'))).length, 1);
});

test('when the database goes away in mid-document, the upload fails and nothing of it stays', async () => {
  const before = await totals();
  const cut = newDocument(randomBytes(1_000_000));
  const chunks = cut.chunks;
  cut.chunks = async function* () {
    for await (const chunk of chunks()) {
      yield chunk;
      await sql`
        select pg_terminate_backend(pid, 5000)
        from pg_stat_activity
        where datname = current_database() and query like 'copy asl_schema.document_content%'`;
    }
  };
  await assert.rejects(insert('cut', cut));
  assert.deepEqual(await totals(), before);
});

test('a list is walked page by page and misses nothing', async () => {
  const stored = await insert('pages', ...Array.from({ length: 7 }, (_, i) => newDocument(`page ${i}`)));
  const walked = [];
  for (let after: string | undefined; ; ) {
    const page = await listDocuments(sql, { projectId: 'pages', after, limit: 3 });
    walked.push(...page);
    after = page.at(-1)?.documentId;
    if (page.length < 3) break;
  }
  assert.deepEqual(walked, stored);
});

test('a parsed text goes with the last document that has its bytes', async () => {
  const [first] = await insert('parsed-a', newDocument('same bytes'));
  const [second] = await insert('parsed-b', newDocument('same bytes'));
  assert.ok(first && second);
  const key = { sha256: first.sha256, parser: 'test', version: '1' };
  await keepParsedText(sql, key, { pages: ['text'], format: 'markdown' });
  await deleteDocument(sql, first.documentId);
  assert.deepEqual(await readParsedText(sql, key), { pages: ['text'], format: 'markdown' });
  await deleteDocument(sql, second.documentId);
  assert.equal(await readParsedText(sql, key), undefined);
});

test('a deleted document is gone with its bytes, and no other is', async () => {
  const [gone, stays] = await insert('deleted', newDocument('gone'), newDocument('stays'));
  assert.equal(await deleteDocument(sql, gone?.documentId ?? ''), 'deleted');
  assert.equal(await deleteDocument(sql, gone?.documentId ?? ''), 'unknown');
  assert.equal(await getDocument(sql, gone?.documentId ?? ''), undefined);
  assert.equal(await readContent(sql, gone?.documentId ?? ''), undefined);
  assert.deepEqual(await idsIn('deleted'), [stays?.documentId]);
  assert.equal(Buffer.from((await readContent(sql, stays?.documentId ?? '')) ?? '').toString(), 'stays');
});
