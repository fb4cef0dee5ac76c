import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket, connect as tcp } from 'node:net';

export type FreezableProxy = {
  /** The database's URL by way of the proxy. */
  proxyUrl: string;
  /** While frozen nothing passes and nothing is closed, as when a cable is cut; what came in meanwhile is lost. */
  freeze: (frozen: boolean) => void;
  close: () => void;
};

/** A network between the service and its database that can go away without a word. */
export async function freezableProxy(databaseUrl: string): Promise<FreezableProxy> {
  const target = new URL(databaseUrl);
  let frozen = false;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = tcp(Number(target.port || 5432), target.hostname);
    let dead = false;
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on('data', (chunk) => {
        // A connection that has lost bytes is of no use any more, also when the network is back.
        dead ||= frozen;
        if (!dead) to.write(chunk);
      });
      from.on('error', () => {});
      from.on('close', () => {
        sockets.delete(from);
        if (!frozen) to.destroy();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const proxied = new URL(databaseUrl);
  proxied.hostname = '127.0.0.1';
  proxied.port = String((server.address() as AddressInfo).port);
  return {
    proxyUrl: proxied.href,
    freeze(on) {
      frozen = on;
    },
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
