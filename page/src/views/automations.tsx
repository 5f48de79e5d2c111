// What agents do on their own: jobs, heartbeats, webhooks and hooks.
import { useState } from "preact/hooks";
import { call, may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { tabOf } from "../core/router";
import { agentOf } from "../core/stores";
import { shorten } from "../core/text";
import { Badge, short, Tabs, Time, type Tone } from "../parts/bits";
import { Button } from "../parts/button";
import { EmptyState, NoRight } from "../parts/states";
import { Loaded, View } from "../parts/view";
import { HookFolders, Webhooks } from "./hooks";
import { JobForm } from "./job_form";
import { JobTable } from "./jobs";

const TABS = [
  ["jobs", "Jobs"],
  ["heartbeat", "Heartbeat"],
  ["webhooks", "Webhooks"],
  ["hooks", "Hooks"],
] as const;

export default function AutomationsView() {
  const [tab, setTab] = tabOf("automations", TABS);
  const [isAdding, setAdding] = useState(false);
  const jobs = useMethod("cron.list", {}, ["sessions.changed"]);
  return (
    <View
      title="Automations"
      about="What agents do on their own: at fixed times, at heartbeats, and when something happens."
      actions={
        may("admin") && (
          <Button kind="primary" icon="plus" onClick={() => setAdding(true)}>
            New job
          </Button>
        )
      }
    >
      <Tabs label="Kind" tabs={TABS} current={tab} onChange={setTab} />
      {tab === "jobs" && <JobTable jobs={jobs} add={() => setAdding(true)} />}
      {tab === "heartbeat" && <Heartbeats />}
      {tab === "webhooks" && (may("admin") ? <Webhooks /> : <NoRight scope="admin" />)}
      {tab === "hooks" && (may("admin") ? <HookFolders /> : <NoRight scope="admin" />)}
      {isAdding && <JobForm onClose={() => setAdding(false)} reload={jobs.reload} />}
    </View>
  );
}

const BEATS: Record<string, Tone> = { failed: "danger", delivered: "accent", woken: "accent" };
const WAKES: Record<string, string> = {
  interval: "at its interval",
  command: "after a command",
  cron: "with a job",
  hook: "by a webhook",
  boot: "at the start",
  subagent: "after a sub-agent",
  manual: "by hand",
};

function Heartbeats() {
  const beats = useMethod("heartbeat.log", {}, ["sessions.changed"]);
  const run = () => call("heartbeat.run", {}).then(beats.reload);
  return (
    <Loaded from={beats}>
      {({ beats: all }) => (
        <>
          {may("admin") && (
            <div>
              <Button icon="heart-pulse" onClick={run}>
                Run a heartbeat now
              </Button>
            </div>
          )}
          {all.length ? (
            <ul class="rows" aria-label="Heartbeats">
              {folded(all as unknown as HeartBeat[]).map((same) => (
                <Beats key={same[0]!.at} beats={same} />
              ))}
            </ul>
          ) : (
            <EmptyState icon="heart-pulse" title="No heartbeat yet">
              A heartbeat is a short turn in which the agent looks at <code>HEARTBEAT.md</code> for work.
            </EmptyState>
          )}
        </>
      )}
    </Loaded>
  );
}

interface HeartBeat {
  agent: string;
  at: string;
  wake: string;
  outcome: string;
  detail?: string;
  tokens?: number;
}

/** Heartbeats in a row that had the same outcome are one row. */
function folded(beats: HeartBeat[]): HeartBeat[][] {
  const groups: HeartBeat[][] = [];
  const kind = ({ agent, outcome, wake, detail }: HeartBeat) => `${agent} ${outcome} ${wake} ${detail ?? ""}`;
  for (const beat of beats) {
    const last = groups.at(-1);
    if (last && kind(last[0]!) === kind(beat)) last.push(beat);
    else groups.push([beat]);
  }
  return groups;
}

function Beats({ beats }: { beats: HeartBeat[] }) {
  const [newest, oldest] = [beats[0]!, beats.at(-1)!];
  const tokens = beats.reduce((sum, beat) => sum + (beat.tokens ?? 0), 0);
  const facts = [WAKES[newest.wake] ?? newest.wake, shorten(newest.detail ?? "", 160), tokens > 0 && `${short(tokens)} tokens`];
  return (
    <li>
      <span class="row-state">
        <Badge tone={BEATS[newest.outcome] ?? "plain"}>{newest.outcome}</Badge>
      </span>
      <div class="row-text">
        {agentOf(newest.agent)?.name ?? newest.agent} {beats.length > 1 && <span class="faint">× {beats.length}</span>}
        <p class="faint">{facts.filter(Boolean).join(" · ")}</p>
      </div>
      <span class="time">
        <Time when={newest.at} />
        {beats.length > 1 && (
          <>
            {" "}
            to <Time when={oldest.at} />
          </>
        )}
      </span>
    </li>
  );
}
