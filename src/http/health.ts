import { Hono } from 'hono';
import type { AppDependencies } from './app.ts';
import { readPauses } from './pauses.ts';
import { Problem } from './problem.ts';
import { checkReadiness } from './readiness.ts';

const READY_WITHIN_MS = 2000;

/** For whatever watches the process: `/healthz` says that it lives, `/readyz` that it can work. */
export function health({ sql, isReady }: AppDependencies): Hono {
  const app = new Hono();

  app.get('/healthz', (c) => c.json({ status: 'ok' }));

  app.get('/readyz', async (c) => {
    if (isReady?.() === false) throw notReady([{ path: 'process', message: 'is starting or stopping' }]);
    const faults = await checkReadiness(sql, READY_WITHIN_MS);
    if (faults.length > 0) throw notReady(faults);
    // A paused stage keeps papers waiting, not the process from working: it is said, and traffic goes on.
    const paused = await readPauses(sql);
    return c.json({ status: 'ready', ...(paused.length > 0 ? { paused } : {}) });
  });

  return app;
}

function notReady(errors: { path: string; message: string }[]): Problem {
  const detail = `not ready: ${errors.map(({ path }) => path).join(', ')}`;
  return new Problem(503, 'not_ready', detail, { errors, headers: { 'Retry-After': '5' } });
}
