import postgres from 'postgres';
import { connect, type Sql } from '../../src/db.ts';

/** One node of an executed plan, as `explain (analyze, buffers, format json)` words it. */
type PlanNode = {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  'Index Cond'?: string;
  Filter?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Join Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  'Shared Hit Blocks': number;
  'Shared Read Blocks': number;
  Plans?: PlanNode[];
};

/** A statement that was run, and the plan by which it was. */
export type Executed = { text: string; plan: PlanNode };

export type PlanSession = {
  /** One connection, with the settings of the product's own. */
  sql: Sql;
  /** Answers the plans of all statements that this connection ran meanwhile, in order. */
  watch(body: () => Promise<unknown>): Promise<Executed[]>;
  /** The same, by generic plans: those that PostgreSQL may change to after five runs of a prepared statement. */
  watchGeneric(body: () => Promise<unknown>): Promise<Executed[]>;
  end(): Promise<void>;
};

/**
 * A connection whose server sends the plan of every statement along, as a notice. So the statements that are looked at are the
 * product's own, prepared by its own driver, and no test holds a copy of them.
 */
export async function openPlanSession(url: string): Promise<PlanSession> {
  const executed: Executed[] = [];
  const sql = postgres(url, {
    max: 1,
    connection: connect(url, { max: 1, applicationName: 'sheaf-plans' }).options.connection,
    onnotice({ message = '' }) {
      const json = message.split(' plan:\n')[1];
      if (json === undefined) return;
      const { 'Query Text': text, Plan: plan } = JSON.parse(json);
      executed.push({ text, plan });
    },
  });
  await sql`load 'auto_explain'`;
  await sql`
    select
      set_config('auto_explain.log_min_duration', '0', false),
      set_config('auto_explain.log_analyze', 'on', false),
      set_config('auto_explain.log_timing', 'off', false),
      set_config('auto_explain.log_buffers', 'on', false),
      set_config('auto_explain.log_format', 'json', false),
      set_config('client_min_messages', 'log', false)`;
  const plan = (mode: string) => sql`select set_config('plan_cache_mode', ${mode}, false)`;
  // The plan of a statement comes after its result, and before the answer to the next one: to one that has no plan of its own.
  const catchUp = () => sql`show server_version`.simple();
  const watch = async (body: () => Promise<unknown>): Promise<Executed[]> => {
    await catchUp();
    executed.length = 0;
    await body();
    await catchUp();
    return executed.splice(0);
  };
  return {
    sql,
    watch,
    async watchGeneric(body) {
      await plan('force_generic_plan');
      const plans = await watch(body);
      await plan('auto');
      const texts = plans.map(({ text }) => text);
      const custom = await sql<{ statement: string }[]>`
        select statement from pg_prepared_statements where statement = any(${texts}) and generic_plans = 0`;
      if (custom.length > 0) throw new Error(`never run by a generic plan: ${custom[0]?.statement}`);
      return plans;
    },
    end: () => sql.end({ timeout: 5 }),
  };
}

/** Why this server can't show the plans, or false: superusers may load auto_explain, where it is installed. */
export async function whyNoPlans(sql: Sql): Promise<string | false> {
  const [user] = await sql<{ superuser: boolean }[]>`
    select rolsuper as superuser from pg_roles where rolname = current_user`;
  if (!user?.superuser) return 'only a superuser may load auto_explain';
  return await sql`load 'auto_explain'`.then(
    () => false as const,
    () => 'this server has no auto_explain',
  );
}

/** What is wrong with a plan for `rows` rows, in words and with the plan; nothing if it touches these and hardly any others. */
export function faultsOf({ text, plan }: Executed, rows: number): string[] {
  const nodes = flatten(plan);
  const most = Math.max(...nodes.map(touched));
  const pages = plan['Shared Hit Blocks'] + plan['Shared Read Blocks'];
  const faults = [
    ...(most > 2 * rows + 50 ? [`touches ${most} rows for ${rows}`] : []),
    // What an index is searched for in vain shows in no count of rows. A row that is written costs a page of each index or two.
    ...(pages > 50 * rows + 500 ? [`reads ${pages} pages for ${rows} rows`] : []),
    ...nodes.filter(isWalk).map((node) => `walks through ${node['Relation Name']}`),
  ];
  return faults.map((fault) => `${fault}:\n${text}\n${describe(plan)}`);
}

/** What a node had in its hands: the rows that it passed on, and those that it looked at in vain. A look is a row at least. */
function touched(node: PlanNode): number {
  const removed =
    (node['Rows Removed by Filter'] ?? 0) +
    (node['Rows Removed by Join Filter'] ?? 0) +
    (node['Rows Removed by Index Recheck'] ?? 0);
  return node['Actual Loops'] * Math.max(1, node['Actual Rows'] + removed);
}

/** Also in a part of the plan that had nothing to do this time. The tickets of a stage are few and come and go. */
function isWalk(node: PlanNode): boolean {
  return node['Node Type'] === 'Seq Scan' && node['Relation Name'] !== 'permit';
}

function flatten(node: PlanNode): PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(flatten)];
}

function describe(node: PlanNode, indent = ''): string {
  const { 'Node Type': type, 'Relation Name': relation, 'Index Name': index, 'Index Cond': condition, Filter } = node;
  const names = [type, relation, index, condition, Filter && `filter ${Filter}`].filter((name) => name !== undefined);
  const line = `${indent}${names.join(' ')}: ${node['Actual Loops']} x ${node['Actual Rows']}, touched ${touched(node)}`;
  return [line, ...(node.Plans ?? []).map((child) => describe(child, `${indent}  `))].join('\n');
}
