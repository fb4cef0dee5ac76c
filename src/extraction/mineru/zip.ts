import { promisify } from 'node:util';
import { crc32, inflateRaw } from 'node:zlib';
import { badAnswer } from './failures.ts';

const inflate = promisify(inflateRaw);

/** The text of a paper is never this long; what claims to be is not unpacked. */
const MAX_ENTRY_BYTES = 64 * 1024 * 1024;
const MAX_ENTRIES = 20_000;

const END_OF_DIRECTORY = 0x06054b50;
const DIRECTORY_ENTRY = 0x02014b50;
const LOCAL_HEADER = 0x04034b50;
const ENCRYPTED = 1;

/**
 * Unpacks the wanted entries of a ZIP archive, in the thread pool and each within bounds; pictures are skipped unread.
 *
 * No more of the format than MinerU's archives need: stored and deflated entries, found by the central directory
 * (APPNOTE.TXT 4.3). Names are keys here and never paths.
 *
 * @throws ExtractionError `mineru_bad_answer` where it is no archive, or one that was cut or changed
 */
export async function readZip(
  archive: Uint8Array,
  wanted: (name: string) => boolean,
): Promise<Map<string, Uint8Array>> {
  const bytes = Buffer.from(archive.buffer, archive.byteOffset, archive.byteLength);
  const files = new Map<string, Uint8Array>();
  try {
    for (const entry of readDirectory(bytes)) {
      if (wanted(entry.name)) files.set(entry.name, await unpack(bytes, entry));
    }
  } catch {
    throw badAnswer('an archive that cannot be read');
  }
  return files;
}

type Entry = { name: string; method: number; crc: number; packed: number; size: number; offset: number };

/** Reads beyond the end throw a RangeError, so a wrong offset never passes for an empty entry. */
function readDirectory(bytes: Buffer): Entry[] {
  // The end record is 22 bytes long, with a comment of up to 65,535 behind it.
  let end = bytes.length - 22;
  const first = Math.max(0, end - 0xffff);
  while (end >= first && bytes.readUInt32LE(end) !== END_OF_DIRECTORY) end -= 1;
  if (end < first) throw new Error('no end of directory');
  const count = bytes.readUInt16LE(end + 10);
  let at = bytes.readUInt32LE(end + 16);
  if (count > MAX_ENTRIES) throw new Error('too many entries');
  const entries: Entry[] = [];
  for (let index = 0; index < count; index += 1) {
    if (bytes.readUInt32LE(at) !== DIRECTORY_ENTRY) throw new Error('no directory entry');
    const nameLength = bytes.readUInt16LE(at + 28);
    if (bytes.readUInt16LE(at + 8) & ENCRYPTED) throw new Error('encrypted');
    entries.push({
      method: bytes.readUInt16LE(at + 10),
      crc: bytes.readUInt32LE(at + 16),
      packed: bytes.readUInt32LE(at + 20),
      size: bytes.readUInt32LE(at + 24),
      offset: bytes.readUInt32LE(at + 42),
      name: bytes.toString('utf8', at + 46, at + 46 + nameLength),
    });
    at += 46 + nameLength + bytes.readUInt16LE(at + 30) + bytes.readUInt16LE(at + 32);
  }
  return entries;
}

async function unpack(bytes: Buffer, { method, crc, packed, size, offset }: Entry): Promise<Uint8Array> {
  if (size > MAX_ENTRY_BYTES) throw new Error('too large');
  if (bytes.readUInt32LE(offset) !== LOCAL_HEADER) throw new Error('no local header');
  // The local header's own extra field may differ in length from the directory's.
  const start = offset + 30 + bytes.readUInt16LE(offset + 26) + bytes.readUInt16LE(offset + 28);
  if (start + packed > bytes.length) throw new Error('cut');
  const data = bytes.subarray(start, start + packed);
  // The declared size is what is unpacked at most, whatever the data say.
  const content = method === 8 ? await inflate(data, { maxOutputLength: Math.max(size, 1) }) : data;
  if (method !== 0 && method !== 8) throw new Error('an unknown method');
  if (content.length !== size || crc32(content) !== crc) throw new Error('changed');
  return content;
}
