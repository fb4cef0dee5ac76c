// One worker of one contender in a process of its own, forked by worker.ts, which it answers until it is told to stop.
import { CONTENDERS } from './contenders/index.ts';
import { createWork } from './work.ts';
import type { Answer, Question, WorkerPlan } from './worker.ts';

const plan = JSON.parse(process.env.BENCH_WORKER ?? '') as WorkerPlan;
const contender = CONTENDERS.find(({ name }) => name === plan.contender);
if (contender === undefined) throw new Error(`no contender ${plan.contender}`);

const work = createWork(plan.waitMs);
const stop = await contender.startWorker(plan.settings, work);
const say = (answer: Answer): void => void process.send?.(answer);

process.on('message', async (question: Question) => {
  switch (question) {
    case 'usage':
      return say({ cpuMs: cpuMs(), memoryBytes: process.memoryUsage.rss() });
    case 'reset':
      work.reset();
      return say({});
    case 'first':
      return say({ firstStart: work.firstStart()?.toString() });
    case 'stop':
      await stop();
      process.exit(0);
  }
});
// Whoever forked this is gone: nobody would ever say stop.
process.on('disconnect', () => process.exit(1));
say({});

function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
