import { randomBytes } from 'node:crypto';
import { v7 as uuidv7 } from 'uuid';

const BYTES = 16;
const DRAWN = 256 * BYTES;
let drawn = Buffer.alloc(0);
let used = 0;

/** A system call for each id would be most of what it costs: many are drawn at once. */
function rng(): Uint8Array {
  if (used === drawn.length) {
    drawn = randomBytes(DRAWN);
    used = 0;
  }
  used += BYTES;
  return drawn.subarray(used - BYTES, used);
}

/**
 * A UUID of version 7, one of many.
 *
 * @param order ids of one millisecond sort by `seq` (RFC 9562, 6.2, method 1); without it, they are of now, in no order
 */
export function newId(order?: { msecs: number; seq: number }): string {
  return uuidv7({ ...order, rng });
}
