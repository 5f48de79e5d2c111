// Tokens and costs by day, model, agent, source and session.
import { useState } from "preact/hooks";
import { useMethod } from "../core/resource";
import { addressOf } from "../core/router";
import { saveFile } from "../core/save_file";
import { agentOf, nameOfSession } from "../core/stores";
import { plural } from "../core/text";
import type { UsageSums } from "../generated/wire";
import { AgentChoice } from "../parts/agent_choice";
import { dollars, Meter, short, Tabs } from "../parts/bits";
import { Button } from "../parts/button";
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
type By = "model" | "agent" | "source" | "session";

function sumOf({ input, output, cacheRead, cacheWrite }: Usage): number {
  return input + output + cacheRead + cacheWrite;
}

export default function UsageView() {
  const [days, setDays] = useState("30");
  const [by, setBy] = useState<By>("model");
  const [unit, setUnit] = useState("tokens");
  const [agent, setAgent] = useState<string | null>(null);
  const sums = useMethod("usage", { days: Number(days), agent, by: "day", thenBy: by });
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
      <Loaded from={sums}>
        {(data) =>
          sumOf(data.total) ? (
            <>
              <Totals total={data.total} />
              <section class="card stack" aria-label="By day">
                <div class="row between wrap">
                  <Tabs label="Grouping" tabs={BY} current={by} onChange={(id) => setBy(id as By)} />
                  <Select label="Show" hideLabel value={unit} options={UNITS} onChange={setUnit} />
                </div>
                <Days sums={data} days={Number(days)} by={by} unit={unit} />
              </section>
              <Groups sums={data} by={by} days={days} />
            </>
          ) : (
            <EmptyState icon="chart-column" title="Nothing was used in this time">
              Every answer of a model is counted here, also those of jobs, heartbeats and sub-agents.
            </EmptyState>
          )
        }
      </Loaded>
      <Budgets agent={agent} />
    </View>
  );
}

const UNITS = [
  ["tokens", "Tokens"],
  ["cost", "Cost"],
] as const;
const MAX_SERIES = 5;

function Totals({ total }: { total: Usage }) {
  const read = total.input + total.cacheRead + total.cacheWrite;
  const share = read ? Math.round((100 * total.cacheRead) / read) : 0;
  return (
    <dl class="figures">
      <Figure name="Cost" value={dollars(total.cost)} />
      <Figure name="Read" value={short(read)} />
      <Figure name="From the cache" value={`${share} %`} />
      <Figure name="Written" value={short(total.output)} />
    </dl>
  );
}

/** The whole time by group, summed over its days. */
function groupsOf({ parts }: UsageSums): Map<string, Usage> {
  const groups = new Map<string, Usage>();
  for (const [name, use] of Object.values(parts).flatMap((part) => Object.entries(part))) {
    const sum = groups.get(name);
    groups.set(name, sum ? added(sum, use) : use);
  }
  return groups;
}

function added(a: Usage, b: Usage): Usage {
  return {
    ...a,
    input: a.input + b.input,
    output: a.output + b.output,
    cacheRead: a.cacheRead + b.cacheRead,
    cacheWrite: a.cacheWrite + b.cacheWrite,
    cost: a.cost + b.cost,
  };
}

/** A bar for each day, stacked by the largest groups; the rest is one series. */
function Days({ sums, days, by, unit }: { sums: UsageSums; days: number; by: By; unit: string }) {
  const value = unit === "cost" ? (use: Usage) => use.cost : sumOf;
  const labels = lastDays(Math.min(days, 90));
  const ordered = [...groupsOf(sums)].sort(([, a], [, b]) => value(b) - value(a)).map(([name]) => name);
  const shown = ordered.length > MAX_SERIES + 1 ? ordered.slice(0, MAX_SERIES) : ordered;
  const rest = ordered.slice(shown.length);
  const of = (names: string[]) =>
    labels.map((day) => names.reduce((sum, name) => sum + (sums.parts[day]?.[name] ? value(sums.parts[day][name]) : 0), 0));
  const series = shown.map((name) => ({ name: nameOf(name, by), values: of([name]) }));
  if (rest.length) series.push({ name: plural(rest.length, "other"), values: of(rest) });
  return (
    <StackedBars
      labels={labels}
      series={series}
      unit={unit === "cost" ? "dollars" : "tokens"}
      format={unit === "cost" ? dollars : short}
    />
  );
}

const SOURCES: Record<string, string> = {
  chat: "Conversations",
  cron: "Jobs",
  heartbeat: "Heartbeats",
  subagent: "Sub-agents",
  hook: "Webhooks",
  boot: "Start of the gateway",
  background: "Background work",
  memory: "Memory",
  compaction: "Summaries",
  other: "Other",
};

function nameOf(name: string, by: By): string {
  if (by === "session") return nameOfSession(name);
  if (by === "source") return SOURCES[name] ?? name;
  return by === "agent" ? (agentOf(name)?.name ?? name) : name;
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

function Groups({ sums, by, days }: { sums: UsageSums; by: By; days: string }) {
  const rows = [...groupsOf(sums)].sort(([, a], [, b]) => sumOf(b) - sumOf(a));
  const share = ({ input, cacheRead, cacheWrite }: Usage) => cacheRead / (input + cacheRead + cacheWrite || 1);
  const columns: Column<[string, Usage]>[] = [
    { title: "Name", cell: ([name]) => <Name name={name} by={by} />, by: ([name]) => nameOf(name, by) },
    { title: "Read", cell: ([, use]) => short(use.input), by: ([, use]) => use.input, isNumber: true },
    { title: "From cache", cell: ([, use]) => short(use.cacheRead), by: ([, use]) => use.cacheRead, isNumber: true },
    { title: "Cache", cell: ([, use]) => `${Math.round(100 * share(use))} %`, by: ([, use]) => share(use), isNumber: true },
    { title: "Written", cell: ([, use]) => short(use.output), by: ([, use]) => use.output, isNumber: true },
    { title: "Cost", cell: ([, use]) => dollars(use.cost), by: ([, use]) => use.cost, isNumber: true },
  ];
  const save = () => {
    const header = `${by},input,cacheRead,cacheWrite,output,cost`;
    const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`;
    const lines = rows.map(([name, use]) =>
      [quoted(name), use.input, use.cacheRead, use.cacheWrite, use.output, use.cost.toFixed(6)].join(","),
    );
    saveFile(`usage-${days}-days.csv`, [header, ...lines, ""].join("\n"));
  };
  return (
    <section class="stack" aria-label="In all">
      <Table label="Usage" columns={columns} rows={rows} keyOf={([name]) => name} />
      <div>
        <Button icon="download" onClick={save}>
          Save as CSV
        </Button>
      </div>
    </section>
  );
}

function Name({ name, by }: { name: string; by: By }) {
  if (by !== "session") return <bdi>{nameOf(name, by)}</bdi>;
  return (
    <a class="link" href={addressOf("chat", name)}>
      <bdi>{nameOf(name, by)}</bdi>
    </a>
  );
}
