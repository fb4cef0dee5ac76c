import { FANOUT } from '../../src/fanout/fanout.ts';
import { testInterleavings } from '../tasks/model/properties.ts';

await testInterleavings(import.meta.url, FANOUT);
