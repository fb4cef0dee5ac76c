/** How often, how long and how much. Times in milliseconds. */
export type HubLimits = {
  /** Least time between two reads of one task. */
  refreshMs: number;
  /** A watched task is read this often though nothing is heard of it: what a lost word costs at most. */
  pollMs: number;
  /** Clients that come within this time after a snapshot share its costly part. */
  detailsMs: number;
  /** How long the streams of a task outlive its closing, for late words about its last results. */
  lingerMs: number;
  /** A silent stream gets a sign of life this often; proxies and our own server cut silent connections. */
  keepAliveMs: number;
  /** A client that takes nothing for this long, though something waits, is cut off. */
  stuckMs: number;
  /**
   * What may wait for one client, in bytes: a cancel says five thousand results at once. All clients share the same frames, so
   * that it costs this much once, and each of them only the 64 kB that it is taking.
   */
  clientBytes: number;
  /** How long events are kept for clients that come back, and how many bytes of them. */
  keepMs: number;
  keepBytes: number;
  /** While somebody watches, something is heard this often, if only our own word. */
  markMs: number;
  /** How often clients and kept events are looked after. */
  tendMs: number;
  /** How many tasks are read at a time. */
  readers: number;
};

export const HUB_LIMITS: HubLimits = {
  refreshMs: 250,
  pollMs: 2500,
  detailsMs: 5000,
  lingerMs: 500,
  keepAliveMs: 15_000,
  stuckMs: 30_000,
  clientBytes: 1024 * 1024,
  keepMs: 60_000,
  keepBytes: 8 * 1024 * 1024,
  markMs: 10_000,
  tendMs: 1000,
  // Of a pool of ten by default, so that requests and workers have the rest.
  readers: 3,
};
