import { setImmediate as nextTurn } from 'node:timers/promises';

/** A call that may be made together with others. */
export type GroupedCall<Input, Output> = (input: Input) => Promise<Output>;

export type GroupOptions<Input, Output> = {
  /** Takes the next group out of the queue: at least one, and no more than one call should carry. */
  take: (queue: Pending<Input, Output>[]) => Pending<Input, Output>[];
  /** Answers by position. One that has no answer is then served alone. */
  together: (inputs: Input[]) => Promise<(Output | undefined)[]>;
  /** Serves one that its group could not, and all of a group that failed: nobody suffers for a neighbour. */
  alone: (input: Input) => Promise<Output>;
  /** Whether the first of a group waits for the others that come in the same turn of the event loop. */
  gather?: boolean;
  /** Nothing is under way any more, and nothing waits. */
  onIdle?: () => void;
};

export type Pending<Input, Output> = {
  input: Input;
  resolve: (output: Output) => void;
  reject: (error: unknown) => void;
};

/**
 * Gathers calls that come while one is under way, and makes them together.
 *
 * Whoever comes first is served at once, alone. Who comes while that is under way goes with the next group, which starts when
 * it has ended: nobody waits for a timer, and the busier the process, the larger its groups.
 */
export function groupCalls<Input, Output>(options: GroupOptions<Input, Output>): GroupedCall<Input, Output> {
  const { take, together, alone, onIdle, gather = false } = options;
  const queue: Pending<Input, Output>[] = [];
  let running = false;

  const serveAlone = ({ input, resolve, reject }: Pending<Input, Output>): void => {
    alone(input).then(resolve, reject);
  };

  const serve = async (group: Pending<Input, Output>[]): Promise<void> => {
    try {
      const outputs = await together(group.map(({ input }) => input));
      group.forEach((pending, i) => {
        const output = outputs[i];
        if (output === undefined) serveAlone(pending);
        else pending.resolve(output);
      });
    } catch (error) {
      const [only, ...others] = group;
      if (only !== undefined && others.length === 0) only.reject(error);
      else group.forEach(serveAlone);
    }
  };

  const run = async (): Promise<void> => {
    running = true;
    if (gather) await nextTurn();
    while (queue.length > 0) await serve(take(queue));
    running = false;
    onIdle?.();
  };

  return (input) =>
    new Promise((resolve, reject) => {
      queue.push({ input, resolve, reject });
      if (!running) void run();
    });
}
