import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { UploadSpool } from '../../src/documents/upload-spool.ts';
import { ownTemporaryFolder } from '../http/temporary-folder.ts';

const temporary = ownTemporaryFolder();

async function* chunksOf(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text);
}

async function textOf(chunks: AsyncIterable<Uint8Array>): Promise<string> {
  const all: Uint8Array[] = [];
  for await (const chunk of chunks) all.push(chunk);
  return Buffer.concat(all).toString();
}

test('a spool gives each of its files back as it came, and leaves no name in the file system', async () => {
  const spool = await UploadSpool.open();
  try {
    const pdf = await spool.add('../a.bin', chunksOf('%P', 'DF', '-1.7', ' and more'));
    const empty = await spool.add('', chunksOf());
    const text = await spool.add('b.md', chunksOf('hello'));
    assert.deepEqual(pdf, {
      filename: 'a.bin',
      mediaType: 'application/pdf',
      byteSize: 17,
      sha256: createHash('sha256').update('%PDF-1.7 and more').digest('hex'),
      offset: 0,
    });
    assert.deepEqual([empty.filename, empty.byteSize, text.mediaType], ['document', 0, 'text/markdown']);
    assert.equal(await textOf(spool.read(pdf)), '%PDF-1.7 and more');
    assert.equal(await textOf(spool.read(empty)), '');
    assert.equal(await textOf(spool.read(text)), 'hello');
    const named = await readdir(temporary);
    assert.deepEqual(named, []);
  } finally {
    await spool.close();
  }
});
