/** A scarce service that all processes share: the reading of papers, and the filling of fields. */
export type Stage = 'parse' | 'llm';

/** Why nobody is let in at the moment. */
export type Pause = {
  /** Null: until someone acts. */
  until: Date | null;
  code: string;
  message: string | null;
};

/** A stage as it is at this moment, for people who look. */
export type StageState = {
  stage: Stage;
  permits: number;
  requestsPerMinute: number | null;
  tokensPerMinute: number | null;
  /** What the running minute has used; zero when it is over. */
  requestsUsed: number;
  tokensUsed: number;
  granted: number;
  waiting: number;
  pause: Pause | null;
  /** Failures in a row. */
  failures: number;
  /** `open`: too many failures in a row, nobody is let in; `probing`: one at a time, until a call succeeds. */
  circuit: 'closed' | 'open' | 'probing';
};

/** From so many failures in a row on, the circuit is open. */
export const FAILURES_TO_OPEN = 10;
/** The first pause of an open circuit; each probe that fails doubles it, up to the longest. */
export const CIRCUIT_PAUSE_SECONDS = 30;
export const CIRCUIT_PAUSE_MAX_SECONDS = 600;
