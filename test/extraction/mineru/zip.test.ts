import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readZip } from '../../../src/extraction/mineru/zip.ts';
import { zipOf } from '../../support/mineru-zip.ts';
import { failure } from './support.ts';

const all = () => true;
const text = 'A paper. '.repeat(1000);
const archive = Buffer.from(zipOf({ 'full.md': text, 'images/1.jpg': 'picture', 'ünïcode.md': 'x', empty: '' }));

/** Written by `zip` 3.0 with a stored and a deflated entry and extra fields. */
const FOREIGN =
  'UEsDBAoAAAAAAMCufl3ur5SDCAAAAAgAAAAHABwAZnVsbC5tZFVUCQADd/ANa3fwDWt1eAsAAQQAAAAABAAAAAAjIFRpdGxlClBLAwQUAAAACADArn5dfOToigkAAACZAAAAEwAcAGFfY29udGVudF9saXN0Lmpzb25VVAkAA3fwDWt38A1rdXgLAAEEAAAAAAQAAAAAizbQURiMKBYAUEsBAh4DCgAAAAAAwK5+Xe6vlIMIAAAACAAAAAcAGAAAAAAAAQAAAKSBAAAAAGZ1bGwubWRVVAUAA3fwDWt1eAsAAQQAAAAABAAAAABQSwECHgMUAAAACADArn5dfOToigkAAACZAAAAEwAYAAAAAAABAAAApIFJAAAAYV9jb250ZW50X2xpc3QuanNvblVUBQADd/ANa3V4CwABBAAAAAAEAAAAAFBLBQYAAAAAAgACAKYAAACfAAAAAAA=';

describe('an archive', () => {
  test('gives the wanted entries and no others', async () => {
    const files = await readZip(archive, (name) => name === 'full.md');
    assert.deepEqual([...files.keys()], ['full.md']);
    assert.equal(Buffer.from(files.get('full.md') ?? []).toString(), text);
    assert.deepEqual([...(await readZip(archive, all)).keys()], ['full.md', 'images/1.jpg', 'ünïcode.md', 'empty']);
  });

  test('of another program is read, stored and deflated', async () => {
    const files = await readZip(Buffer.from(FOREIGN, 'base64'), all);
    const texts = [...files].map(([name, bytes]) => [name, Buffer.from(bytes).toString()]);
    assert.deepEqual(texts, [
      ['full.md', '# Title\n'],
      ['a_content_list.json', `[${'0, '.repeat(50)}0]`],
    ]);
  });

  test('with a comment behind it is found', async () => {
    const commented = Buffer.concat([archive, Buffer.from('made by someone')]);
    assert.equal((await readZip(commented, all)).size, 4);
  });

  const changes: [string, (bytes: Buffer) => Buffer][] = [
    ['cut', (bytes) => bytes.subarray(0, bytes.length - 30)],
    ['cut at the beginning', (bytes) => bytes.subarray(30)],
    ['changed', (bytes) => withByte(bytes, 60, bytes.readUInt8(60) ^ 1)],
    ['of zeros', (bytes) => Buffer.alloc(bytes.length)],
    ['empty', () => Buffer.alloc(0)],
    ['encrypted', (bytes) => withByte(bytes, directoryOf(bytes) + 8, 1)],
    ['larger than it says', (bytes) => withByte(bytes, directoryOf(bytes) + 25, 0)],
    ['too large', (bytes) => withByte(bytes, directoryOf(bytes) + 27, 0x7f)],
  ];
  for (const [what, change] of changes) {
    test(`that is ${what} is refused`, async () => {
      await failure(readZip(change(Buffer.from(archive)), all), 'transient mineru_bad_answer');
    });
  }
});

function directoryOf(bytes: Buffer): number {
  return bytes.readUInt32LE(bytes.length - 6);
}

function withByte(bytes: Buffer, at: number, value: number): Buffer {
  bytes.writeUInt8(value, at);
  return bytes;
}
