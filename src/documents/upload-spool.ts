import { createHash } from 'node:crypto';
import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cleanFilename, detectMediaType, type MediaType, SNIFF_BYTES } from './document.ts';

/** A file that has arrived in full and lies in the spool. */
export type SpooledFile = {
  filename: string;
  mediaType: MediaType;
  byteSize: number;
  sha256: string;
  offset: number;
};

/**
 * Where an upload waits until all of it is here, so that neither memory nor a transaction has to. All its files lie one
 * behind the other in a single temporary file whose name is removed as soon as it is open: the disk space is free again when
 * the handle closes, also when the process is killed.
 */
export class UploadSpool {
  readonly #file: FileHandle;
  #end = 0;

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  static async open(): Promise<UploadSpool> {
    const folder = await mkdtemp(join(tmpdir(), 'sheaf-upload-'));
    try {
      return new UploadSpool(await open(join(folder, 'files'), 'wx+', 0o600));
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  /** Takes in one file, chunk by chunk; what `chunks` throws comes out again. One call at a time. */
  async add(name: string, chunks: AsyncIterable<Uint8Array>): Promise<SpooledFile> {
    const filename = cleanFilename(name);
    const hash = createHash('sha256');
    const offset = this.#end;
    let head = Buffer.alloc(0);
    for await (const chunk of chunks) {
      if (head.length < SNIFF_BYTES) head = Buffer.concat([head, chunk.subarray(0, SNIFF_BYTES - head.length)]);
      hash.update(chunk);
      await this.#append(chunk);
    }
    return {
      filename,
      mediaType: detectMediaType(head, filename),
      byteSize: this.#end - offset,
      sha256: hash.digest('hex'),
      offset,
    };
  }

  /** The bytes of one file, in chunks of up to 256 kB. */
  async *read(file: SpooledFile): AsyncGenerator<Uint8Array, void, undefined> {
    for (let at = 0; at < file.byteSize; ) {
      const chunk = Buffer.allocUnsafe(Math.min(256 * 1024, file.byteSize - at));
      const { bytesRead } = await this.#file.read(chunk, 0, chunk.length, file.offset + at);
      if (bytesRead === 0) throw new Error('the spool ends before its file does');
      yield chunk.subarray(0, bytesRead);
      at += bytesRead;
    }
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  async #append(chunk: Uint8Array): Promise<void> {
    let at = 0;
    while (at < chunk.length) {
      const { bytesWritten } = await this.#file.write(chunk, at, chunk.length - at, this.#end);
      at += bytesWritten;
      this.#end += bytesWritten;
    }
  }
}
