import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket, connect as tcp } from 'node:net';
import { after } from 'node:test';

export type BreakableProxy = {
  url: string;
  /** Breaks all connections; new ones are taken at once, and go to another server if one is named. */
  cut: (toUrl?: string) => void;
};

/** A network between clients and a service that loses its connections when told to. */
export async function breakableProxy(serviceUrl: string): Promise<BreakableProxy> {
  let target = new URL(serviceUrl);
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = tcp(Number(target.port), target.hostname);
    client.pipe(upstream).pipe(client);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => sockets.delete(socket));
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const cut = (toUrl?: string): void => {
    if (toUrl !== undefined) target = new URL(toUrl);
    for (const socket of sockets) socket.resetAndDestroy();
  };
  after(() => {
    server.close();
    cut();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, cut };
}
