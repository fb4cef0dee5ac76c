import { join } from 'node:path';
import { repository } from '../cli.ts';

/** All that the embedded PostgreSQL keeps. */
export const home = join(repository, '.data');
export const dataDirectory = join(home, 'postgres');
export const logFile = join(home, 'postgres.log');
/** Inside the data directory, so that password and data come and go together. */
export const passwordFile = join(dataDirectory, 'sheaf.password');
