import { SCATTER } from '../../src/tasks/scatter.ts';
import { testInterleavings } from './model/properties.ts';

await testInterleavings(import.meta.url, SCATTER);
