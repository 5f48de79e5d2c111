// Jobs: when they run, how the last run ended, what they cost, and what can be done with them.
import { useState } from "preact/hooks";
import { attempting, call, may } from "../core/gateway";
import { closePanel, openPanel } from "../core/panel";
import { type Resource, useMethod } from "../core/resource";
import { agentOf } from "../core/stores";
import { plural, reveal, shorten } from "../core/text";
import { exactTime, relativeTime } from "../core/time";
import type { Jobs as JobList } from "../generated/wire";
import { Badge, dollars, Time, type Tone } from "../parts/bits";
import { Button, IconButton } from "../parts/button";
import { confirm } from "../parts/dialog";
import { EmptyState } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { toast } from "../parts/toast";
import { Loaded } from "../parts/view";
import { describeCron } from "./cron_words";
import { JobForm } from "./job_form";

const SPENT_DAYS = 30;

interface JobRun {
  outcome: string;
  startedAt: string;
  endedAt: string | null;
  reason: string;
  summary: string;
}

export interface Job {
  id: string;
  name: string;
  agentId: string;
  schedule: { kind: string; expr?: string; tz?: string; everyMs?: number; at?: string };
  message: string;
  enabled: boolean;
  nextAt: string | null;
  failures: number;
  createdBy: string;
  lastRun: JobRun | null;
}

type Change = (act: () => Promise<unknown>, done: string) => void;

export function describeSchedule({ kind, expr = "", tz, everyMs = 0, at = "" }: Job["schedule"]): string {
  if (kind === "cron") return `${describeCron(expr)}${tz ? ` (${tz})` : ""}`;
  if (kind === "at") return `Once, ${exactTime(at)}`;
  const minutes = everyMs / 60_000;
  return minutes < 60 ? `Every ${minutes} min` : `Every ${(minutes / 60).toLocaleString()} h`;
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
      <JobTable isOfOne jobs={jobs} add={() => setAdding(true)} />
      {isAdding && <JobForm agent={agent} onClose={() => setAdding(false)} reload={jobs.reload} />}
    </>
  );
}

interface JobTableProps {
  jobs: Resource<JobList>;
  isOfOne?: boolean;
  add: () => void;
}

export function JobTable({ jobs, isOfOne, add }: JobTableProps) {
  const [editing, setEditing] = useState<Job | null>(null);
  const spent = useMethod("usage", { by: "job", days: SPENT_DAYS }).data?.groups ?? {};
  const change: Change = (act, done) =>
    void attempting(async () => {
      await act();
      await jobs.reload();
      toast(done, undefined, "calendar-clock");
    });
  return (
    <>
      <Loaded from={jobs}>
        {({ jobs: found }) => {
          const all = found as unknown as Job[];
          if (!all.length) return <NoJobs add={add} />;
          const cost = ({ id, agentId }: Job) => spent[`${agentId}:${id}`]?.cost ?? 0;
          return (
            <>
              {!isOfOne && <Summary jobs={all} cost={all.reduce((sum, job) => sum + cost(job), 0)} />}
              <Table
                label="Jobs"
                columns={columnsOf(Boolean(isOfOne), cost, change, setEditing)}
                rows={all}
                keyOf={({ id }) => id}
              />
            </>
          );
        }}
      </Loaded>
      {editing && <JobForm key={editing.id} job={editing} onClose={() => setEditing(null)} reload={jobs.reload} />}
    </>
  );
}

function NoJobs({ add }: { add: () => void }) {
  return (
    <EmptyState
      icon="calendar-clock"
      title="No jobs yet"
      action={
        may("admin") && (
          <Button icon="plus" onClick={add}>
            Add a job
          </Button>
        )
      }
    >
      A job sends a message to an agent at a fixed time: a digest every morning, a reminder on Friday.
    </EmptyState>
  );
}

function Summary({ jobs, cost }: { jobs: Job[]; cost: number }) {
  const failing = jobs.filter(({ lastRun }) => lastRun?.outcome === "failed").length;
  const next = jobs.map(({ nextAt }) => nextAt).filter(Boolean).sort()[0];
  const facts = [
    plural(jobs.filter(({ enabled }) => enabled).length, "active job"),
    failing && `${failing} failed last time`,
    next && `next ${relativeTime(next)}`,
    cost > 0 && `${dollars(cost)} in ${SPENT_DAYS} days`,
  ];
  return <p class="faint">{facts.filter(Boolean).join(" · ")}</p>;
}

function columnsOf(isOfOne: boolean, cost: (job: Job) => number, change: Change, edit: (job: Job) => void): Column<Job>[] {
  return [
    {
      title: "Job",
      cell: (job) => (
        <>
          <button type="button" class="link" onClick={() => showJob(job, change, edit)}>
            <bdi>{shorten(job.name, 60)}</bdi>
          </button>{" "}
          {!job.enabled && <Badge>paused</Badge>}
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
      title: "Last run",
      cell: ({ lastRun }) =>
        lastRun ? (
          <span class="row">
            <Outcome run={lastRun} /> <Time when={lastRun.startedAt} />
          </span>
        ) : (
          <span class="faint">not yet</span>
        ),
      by: ({ lastRun }) => lastRun?.startedAt ?? "",
    },
    { title: "Spent", cell: (job) => (cost(job) ? dollars(cost(job)) : "–"), by: cost, isNumber: true },
    { title: "Actions", cell: (job) => may("admin") && <RowActions job={job} change={change} /> },
  ];
}

const TONES: Record<string, Tone> = { ok: "ok", failed: "danger", interrupted: "danger", running: "accent", skipped: "warn" };

function Outcome({ run }: { run: JobRun }) {
  return <Badge tone={TONES[run.outcome] ?? "plain"}>{run.outcome}</Badge>;
}

const runNow = (job: Job, change: Change) => change(() => call("cron.run", { job: job.id }), `“${job.name}” runs now.`);
const pause = (job: Job, change: Change) => {
  const done = job.enabled ? `“${job.name}” is paused.` : `“${job.name}” runs again at its times.`;
  change(() => call("cron.edit", { job: job.id, enabled: !job.enabled }), done);
};

function RowActions({ job, change }: { job: Job; change: Change }) {
  return (
    <span class="row tight">
      <IconButton icon="play" label={`Run ${job.name} now`} onClick={() => runNow(job, change)} />
      <IconButton
        icon={job.enabled ? "pause" : "rotate-ccw"}
        label={job.enabled ? `Pause ${job.name}` : `Resume ${job.name}`}
        onClick={() => pause(job, change)}
      />
      <IconButton
        icon="trash-2"
        label={`Remove ${job.name}`}
        onClick={async () => {
          const isSure = await confirm(`Remove “${job.name}”?`, "Its history is removed, too.", "Remove");
          if (isSure) change(() => call("cron.remove", { job: job.id }), `“${job.name}” was removed.`);
        }}
      />
    </span>
  );
}

function showJob(job: Job, change: Change, edit: (job: Job) => void): void {
  openPanel(job.name, () => <JobDetails job={job} change={change} edit={edit} />);
}

function JobDetails({ job, change, edit }: { job: Job; change: Change; edit: (job: Job) => void }) {
  const runs = useMethod("cron.runs", { job: job.id }, ["sessions.changed"]);
  return (
    <div class="stack">
      {may("admin") && (
        <div class="row wrap">
          <Button kind="primary" icon="play" onClick={() => runNow(job, change)}>
            Run now
          </Button>
          <Button
            icon="pencil"
            onClick={() => {
              closePanel();
              edit(job);
            }}
          >
            Change
          </Button>
        </div>
      )}
      <dl class="facts roomy">
        <dt>When</dt>
        <dd>{describeSchedule(job.schedule)}</dd>
        <dt>Next</dt>
        <dd>{job.nextAt ? exactTime(job.nextAt) : "never"}</dd>
        <dt>Made by</dt>
        <dd>{job.createdBy === "owner" ? "you" : job.createdBy}</dd>
      </dl>
      <section class="stack">
        <h3>Message to {agentOf(job.agentId)?.name ?? job.agentId}</h3>
        <p class="plain quoted" dir="auto">
          {reveal(job.message)}
        </p>
      </section>
      <Loaded from={runs}>{({ runs: all }) => <Runs runs={all as unknown as JobRun[]} />}</Loaded>
    </div>
  );
}

/** The latest runs: a strip from the oldest to the newest, then each with what came of it. */
function Runs({ runs }: { runs: JobRun[] }) {
  if (!runs.length) return <p class="faint">It has not run yet.</p>;
  return (
    <section class="stack">
      <h3>Runs</h3>
      <div class="dots" aria-hidden="true">
        {[...runs].reverse().map((run) => (
          <span key={run.startedAt} class={TONES[run.outcome] ?? "plain"} title={`${run.outcome}, ${exactTime(run.startedAt)}`} />
        ))}
      </div>
      <ul class="rows" aria-label="Runs">
        {runs.map((run) => (
          <li key={run.startedAt}>
            <span class="row-state">
              <Outcome run={run} />
            </span>
            <span class="row-text faint">{shorten(run.summary, 200)}</span>
            <Time when={run.startedAt} />
          </li>
        ))}
      </ul>
    </section>
  );
}
