// Tokens and costs by day, model, agent, source and session.
import { useState } from "preact/hooks";
import { useMethod } from "../core/resource";
import { addressOf } from "../core/router";
import { agentOf, nameOfSession } from "../core/stores";
import type { UsageSums } from "../generated/wire";
import { AgentChoice } from "../parts/agent_choice";
import { dollars, Meter, short, Tabs } from "../parts/bits";
import { Select } from "../parts/field";
import { StackedBars } from "../parts/plot";
import { EmptyState } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Loaded, View } from "../parts/view";

const BY = [
  ["model", "By model"],
  ["agent", "By agent"],
  ["source", "By source"],
  ["session", "By thread"],
] as const;
const DAYS = [
  ["7", "7 days"],
  ["30", "30 days"],
  ["90", "90 days"],
  ["365", "A year"],
] as const;

type Usage = UsageSums["total"];
type By = "day" | "model" | "agent" | "source" | "session";

function sumOf({ input, output, cacheRead, cacheWrite }: Usage): number {
  return input + output + cacheRead + cacheWrite;
}

export default function UsageView() {
  const [days, setDays] = useState("30");
  const [by, setBy] = useState<By>("model");
  const [agent, setAgent] = useState<string | null>(null);
  const params = { days: Number(days), agent };
  const daily = useMethod("usage", { ...params, by: "day" });
  const groups = useMethod("usage", { ...params, by });
  return (
    <View
      title="Usage"
      about="What the models read and wrote, and what it cost."
      actions={
        <>
          <AgentChoice all value={agent} onChange={setAgent} />
          <Select label="Time" hideLabel value={days} options={DAYS} onChange={setDays} />
        </>
      }
    >
      <Loaded from={daily}>{(data) => <Totals sums={data} days={Number(days)} />}</Loaded>
      <Budgets agent={agent} />
      <Tabs label="Grouping" tabs={BY} current={by} onChange={(id) => setBy(id as By)} />
      <Loaded from={groups}>{(data) => <Groups sums={data} by={by} />}</Loaded>
    </View>
  );
}

function Totals({ sums: { total, groups }, days }: { sums: UsageSums; days: number }) {
  const read = total.input + total.cacheRead + total.cacheWrite;
  const share = read ? Math.round((100 * total.cacheRead) / read) : 0;
  const labels = lastDays(Math.min(days, 90));
  const of = (pick: (usage: Usage) => number) => labels.map((day) => (groups[day] ? pick(groups[day]) : 0));
  const series = [
    { name: "read", values: of(({ input }) => input) },
    { name: "from the cache", values: of(({ cacheRead, cacheWrite }) => cacheRead + cacheWrite) },
    { name: "written", values: of(({ output }) => output) },
  ];
  if (!sumOf(total)) {
    return (
      <EmptyState icon="chart-column" title="Nothing was used in this time">
        Every answer of a model is counted here, also those of jobs, heartbeats and sub-agents.
      </EmptyState>
    );
  }
  return (
    <>
      <dl class="figures">
        <Figure name="Cost" value={dollars(total.cost)} />
        <Figure name="Read" value={short(read)} />
        <Figure name="Written" value={short(total.output)} />
        <Figure name="From the cache" value={`${share} %`} />
      </dl>
      <div class="card">
        <StackedBars labels={labels} series={series} unit="tokens" />
      </div>
    </>
  );
}

/** The budgets that have a limit, each with what is used of it. */
export function Budgets({ agent }: { agent: string | null }) {
  const found = useMethod("usage.budgets", { agent }, ["sessions.changed", "config.changed"]).data;
  const rows = found?.budgets ?? [];
  if (!rows.length) return null;
  return (
    <section class="card stack" aria-label="Budgets">
      <h2>Budgets</h2>
      <ul class="budgets">
        {rows.map((budget) => {
          const limits = [
            budget.usdLimit !== null && `${dollars(budget.usd)} of ${dollars(budget.usdLimit)}`,
            budget.tokenLimit !== null && `${short(budget.tokens)} of ${short(budget.tokenLimit)} tokens`,
          ];
          const text = limits.filter(Boolean).join(" · ");
          const shares = [budget.usd / (budget.usdLimit ?? Infinity), budget.tokens / (budget.tokenLimit ?? Infinity)];
          return (
            <li key={`${budget.agent} ${budget.name}`}>
              <p class="row between">
                <span>
                  {nameOfBudget(budget.name)}
                  {agent === null && <span class="faint"> · {agentOf(budget.agent)?.name ?? budget.agent}</span>}
                </span>
                <span class="number faint">{text}</span>
              </p>
              <Meter label={nameOfBudget(budget.name)} value={Math.max(...shares)} max={1} text={text} />
            </li>
          );
        })}
      </ul>
      <p class="faint">
        When one is used up, turns wait until midnight. Change them in{" "}
        <a href={addressOf("config", "agents.defaults.budget")}>agents.defaults.budget</a>.
      </p>
    </section>
  );
}

const BUDGETS: Record<string, string> = {
  perDay: "Today",
  background: "Background work today",
  perSession: "The dearest thread of today",
};

function nameOfBudget(name: string): string {
  return BUDGETS[name] ?? `Today, ${name.replace(/^perSource\./, "")}`;
}

function Figure({ name, value }: { name: string; value: string }) {
  return (
    <div class="card">
      <dt class="faint">{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** The dates of the last days, the oldest first. */
function lastDays(count: number): string[] {
  const today = new Date();
  return Array.from({ length: count }, (_, back) => {
    const day = new Date(today.getFullYear(), today.getMonth(), today.getDate() - (count - 1 - back));
    return `${day.getFullYear()}-${String(day.getMonth() + 1).padStart(2, "0")}-${String(day.getDate()).padStart(2, "0")}`;
  });
}

function Groups({ sums: { groups }, by }: { sums: UsageSums; by: By }) {
  const rows = Object.entries(groups).sort(([, a], [, b]) => sumOf(b) - sumOf(a));
  const columns: Column<[string, Usage]>[] = [
    { title: "Name", cell: ([name]) => <bdi>{by === "session" ? nameOfSession(name) : name}</bdi>, by: ([name]) => name },
    { title: "Read", cell: ([, { input }]) => short(input), by: ([, { input }]) => input, isNumber: true },
    { title: "From cache", cell: ([, use]) => short(use.cacheRead), by: ([, use]) => use.cacheRead, isNumber: true },
    { title: "Written", cell: ([, { output }]) => short(output), by: ([, { output }]) => output, isNumber: true },
    { title: "Cost", cell: ([, { cost }]) => dollars(cost), by: ([, { cost }]) => cost, isNumber: true },
  ];
  return rows.length ? <Table label="Usage" columns={columns} rows={rows} keyOf={([name]) => name} /> : null;
}
