const LEVELS = { debug: 10, info: 20, warn: 30, error: 40 } as const;
export type LogLevel = keyof typeof LEVELS;

/** What a line may carry: ids, counts, durations, codes. Never a paper's text, a parameter's value or a key. */
export type LogFields = Record<string, string | number | boolean | null | undefined>;

/** Writes one JSON object a line. `child` binds fields, such as taskId and resultId, to every line that follows. */
export type Logger = {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  child(bound: LogFields): Logger;
};

export type LogOptions = { level: LogLevel; write?: (line: string) => void };

/** Lines go to standard error, so that standard output stays for what a command prints for people. */
export function createLogger(options: LogOptions, bound: LogFields = {}): Logger {
  const write = options.write ?? ((line: string) => void process.stderr.write(line));
  const at =
    (level: LogLevel) =>
    (message: string, fields: LogFields = {}): void => {
      if (LEVELS[level] < LEVELS[options.level]) return;
      write(`${JSON.stringify({ time: new Date().toISOString(), level, message, ...bound, ...fields })}\n`);
    };
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: (more) => createLogger(options, { ...bound, ...more }),
  };
}

/** An error as one bounded line: its code, if it has one, and its message. A stack stays out: it may quote parameters. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error).slice(0, 500);
  const code = (error as { code?: unknown }).code;
  const text = typeof code === 'string' && !error.message.includes(code) ? `${code}: ${error.message}` : error.message;
  return (text === '' ? error.name : text).slice(0, 500);
}
