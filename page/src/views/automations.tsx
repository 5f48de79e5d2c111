// Jobs with their next and last runs, what the heartbeat did, webhooks and hooks.
import { useState } from "preact/hooks";
import { attempting, call, may } from "../core/gateway";
import { openPanel } from "../core/panel";
import { useMethod } from "../core/resource";
import { tabOf } from "../core/router";
import { agentOf } from "../core/stores";
import { shorten } from "../core/text";
import { exactTime } from "../core/time";
import { Badge, short, Tabs, Time, type Tone } from "../parts/bits";
import { Button, IconButton } from "../parts/button";
import { confirm, Dialog } from "../parts/dialog";
import { Field, Select } from "../parts/field";
import { EmptyState, NoRight } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Loaded, View } from "../parts/view";
import { describeCron } from "./cron_words";
import { HookFolders, Webhooks } from "./hooks";

interface Job {
  id: string;
  name: string;
  agentId: string;
  schedule: { kind: string; expr?: string; tz?: string; everyMs?: number; at?: string };
  message: string;
  enabled: boolean;
  nextAt: string | null;
  failures: number;
  createdBy: string;
}

export function describeSchedule({ kind, expr = "", tz, everyMs = 0, at = "" }: Job["schedule"]): string {
  if (kind === "cron") return `${describeCron(expr)}${tz ? ` (${tz})` : ""}`;
  if (kind === "at") return `Once, ${exactTime(at)}`;
  const minutes = everyMs / 60_000;
  return minutes < 60 ? `Every ${minutes} min` : `Every ${(minutes / 60).toLocaleString()} h`;
}

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
      {tab === "jobs" && (
        <Loaded from={jobs}>{({ jobs: all }) => <Jobs jobs={all as Job[]} reload={jobs.reload} />}</Loaded>
      )}
      {tab === "heartbeat" && <Heartbeats />}
      {tab === "webhooks" && (may("admin") ? <Webhooks /> : <NoRight scope="admin" />)}
      {tab === "hooks" && (may("admin") ? <HookFolders /> : <NoRight scope="admin" />)}
      {isAdding && <AddJob onClose={() => setAdding(false)} reload={jobs.reload} />}
    </View>
  );
}

/** The jobs of one agent, as its own view shows them. */
export function AgentJobs({ agent }: { agent: string }) {
  const [isAdding, setAdding] = useState(false);
  const jobs = useMethod("cron.list", { agent }, ["sessions.changed"]);
  return (
    <>
      {may("admin") && (
        <div>
          <Button icon="plus" onClick={() => setAdding(true)}>
            New job
          </Button>
        </div>
      )}
      <Loaded from={jobs}>{({ jobs: all }) => <Jobs isOfOne jobs={all as Job[]} reload={jobs.reload} />}</Loaded>
      {isAdding && <AddJob agent={agent} onClose={() => setAdding(false)} reload={jobs.reload} />}
    </>
  );
}

function Jobs({ jobs, reload, isOfOne }: { jobs: Job[]; reload: () => Promise<void>; isOfOne?: boolean }) {
  if (!jobs.length) {
    return (
      <EmptyState icon="calendar-clock" title="No jobs yet">
        A job sends a message to an agent at a fixed time: a digest every morning, a reminder on Friday.
      </EmptyState>
    );
  }
  const change = (act: () => Promise<unknown>) => void attempting(() => act().then(reload));
  const columns: Column<Job>[] = [
    {
      title: "Job",
      cell: (job) => (
        <>
          <button type="button" class="link" onClick={() => showJob(job)}>
            <bdi>{shorten(job.name, 60)}</bdi>
          </button>{" "}
          {!job.enabled && <Badge>paused</Badge>} {job.failures > 0 && <Badge tone="danger">{job.failures} failed</Badge>}
        </>
      ),
      by: ({ name }) => name,
    },
    { title: "When", cell: ({ schedule }) => describeSchedule(schedule), isWide: true },
    ...(isOfOne
      ? []
      : [{ title: "Agent", cell: ({ agentId }: Job) => agentOf(agentId)?.name ?? agentId, by: ({ agentId }: Job) => agentId }]),
    { title: "Next", cell: ({ nextAt }) => <Time when={nextAt} />, by: ({ nextAt }) => nextAt ?? "~" },
    {
      title: "Actions",
      cell: (job) =>
        may("admin") && (
          <span class="row">
            <IconButton icon="play" label={`Run ${job.name} now`} onClick={() => change(() => call("cron.run", { job: job.id }))} />
            <IconButton
              icon={job.enabled ? "pause" : "rotate-ccw"}
              label={job.enabled ? `Pause ${job.name}` : `Resume ${job.name}`}
              onClick={() => change(() => call("cron.edit", { job: job.id, enabled: !job.enabled }))}
            />
            <IconButton
              icon="trash-2"
              label={`Remove ${job.name}`}
              onClick={async () => {
                const isSure = await confirm(`Remove “${job.name}”?`, "Its history is removed, too.", "Remove");
                if (isSure) change(() => call("cron.remove", { job: job.id }));
              }}
            />
          </span>
        ),
    },
  ];
  return <Table label="Jobs" columns={columns} rows={jobs} keyOf={({ id }) => id} />;
}

function showJob(job: Job): void {
  openPanel(job.name, () => <JobDetails job={job} />);
}

const TONES: Record<string, Tone> = { ok: "ok", failed: "danger", error: "danger", running: "accent", skipped: "warn" };

function JobDetails({ job }: { job: Job }) {
  const runs = useMethod("cron.runs", { job: job.id }, ["sessions.changed"]);
  return (
    <div class="stack">
      <p>{describeSchedule(job.schedule)}</p>
      <p class="faint">
        Next: <Time when={job.nextAt} /> · made by {job.createdBy}
      </p>
      <pre class="wrapped" tabindex={0} role="group" aria-label="Message">
        {job.message}
      </pre>
      <Loaded from={runs}>
        {({ runs: all }) => (
          <>
            <div class="dots" aria-hidden="true">
              {all.slice(0, 40).map((run, place) => (
                <span key={place} class={TONES[stateOf(run)] ?? "plain"} title={stateOf(run)} />
              ))}
            </div>
            {all.length === 0 && <p class="faint">It has not run yet.</p>}
            <ul class="rows">
              {all.slice(0, 40).map((run, place) => (
                <li key={place}>
                  <span class="row-state">
                    <Badge tone={TONES[stateOf(run)] ?? "plain"}>{stateOf(run)}</Badge>
                  </span>
                  <span class="row-text faint">{shorten(run.error ?? run.text ?? run.summary ?? "", 200)}</span>
                  <Time when={run.startedAt ?? run.started ?? run.at} />
                </li>
              ))}
            </ul>
          </>
        )}
      </Loaded>
    </div>
  );
}

function stateOf(run: Record<string, any>): string {
  return String(run.status ?? run.state ?? run.outcome ?? "");
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
              {all.map((beat, place) => (
                <li key={place}>
                  <span class="row-state">
                    <Badge tone={BEATS[beat.outcome] ?? "plain"}>{beat.outcome}</Badge>
                  </span>
                  <div class="row-text">
                    {agentOf(beat.agent)?.name ?? beat.agent}
                    <p class="faint">
                      {[WAKES[beat.wake] ?? beat.wake, shorten(beat.detail ?? "", 160), beat.tokens && `${short(beat.tokens)} tokens`]
                        .filter(Boolean)
                        .join(" · ")}
                    </p>
                  </div>
                  <Time when={beat.at} />
                </li>
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

const KINDS = [
  ["cron", "At times (cron)"],
  ["every", "At intervals"],
  ["at", "Once"],
] as const;
const EXAMPLES: Record<string, string> = { cron: "30 7 * * 1-5", every: "2h", at: "2026-12-01T09:00" };

interface AddJobProps {
  agent?: string;
  onClose: () => void;
  reload: () => Promise<void>;
}

function AddJob({ agent, onClose, reload }: AddJobProps) {
  const [name, setName] = useState("");
  const [message, setMessage] = useState("");
  const [kind, setKind] = useState("cron");
  const [when, setWhen] = useState(EXAMPLES.cron!);
  const [problem, setProblem] = useState("");
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await call("cron.add", { agent: agent ?? null, fields: { name, message, [kind]: when } });
      await reload();
      onClose();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <Dialog title="New job" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <Field label="Name" value={name} onInput={setName} required maxlength={100} />
        <Field label="Message to the agent" value={message} onInput={setMessage} rows={3} required />
        <Select
          label="When"
          value={kind}
          options={KINDS}
          onChange={(value) => {
            setKind(value);
            setWhen(EXAMPLES[value] ?? "");
          }}
        />
        <Field
          label={kind === "cron" ? "Cron expression" : kind === "every" ? "Interval" : "Time"}
          value={when}
          onInput={setWhen}
          hint={kind === "cron" ? describeCron(when) : `For example ${EXAMPLES[kind]}`}
          mono
          required
        />
        {problem && (
          <p class="problem" role="alert">
            {problem}
          </p>
        )}
        <div class="row end">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind="primary">
            Add the job
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
