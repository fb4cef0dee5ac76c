import type { LogFields, Logger } from '../log.ts';
import type { EventLevel, TaskEvent } from './task-event.ts';

const MAX_CHARACTERS = 500;

/**
 * A logger whose lines for people (info and above) are also told, in short, to whoever watches the task.
 *
 * @param bound what the lines are about; the logger has these fields already
 */
export function withLogEvents(
  log: Logger,
  bound: { taskId: string; resultId: string; attempt: number },
  publish: (event: TaskEvent) => void,
): Logger {
  const at =
    (level: EventLevel) =>
    (message: string, fields: LogFields = {}): void => {
      log[level](message, fields);
      publish({ type: 'log', ...bound, level, message: describe(message, fields), at: Date.now() });
    };
  return {
    debug: (message, fields) => log.debug(message, fields),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: (more) => withLogEvents(log.child(more), bound, publish),
  };
}

/** Of the fields only the code and the error are for everybody; an error often begins with its code. */
function describe(message: string, { code, error }: LogFields): string {
  const [why, what] = [code, error].map((field) => (field === undefined || field === null ? '' : String(field)));
  const text = [message, what?.startsWith(why ?? '') ? '' : why, what].filter((part) => part).join(': ');
  return text.length <= MAX_CHARACTERS ? text : `${text.slice(0, MAX_CHARACTERS - 1)}…`;
}
