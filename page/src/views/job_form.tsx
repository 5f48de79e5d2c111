// The form of a job, which explains its schedule while it is written.
import { useEffect, useState } from "preact/hooks";
import { call } from "../core/gateway";
import { agents } from "../core/stores";
import { AgentChoice } from "../parts/agent_choice";
import { Button } from "../parts/button";
import { Dialog } from "../parts/dialog";
import { Field, Select } from "../parts/field";
import { toast } from "../parts/toast";
import { describeCron } from "./cron_words";
import type { Job } from "./jobs";

const PAUSE_MS = 300;
const KINDS = [
  ["cron", "At times (cron)"],
  ["every", "At intervals"],
  ["at", "Once"],
] as const;
const EXAMPLES: Record<string, string> = { cron: "30 7 * * 1-5", every: "2h", at: "2026-12-01T09:00" };
const NAMES: Record<string, string> = { cron: "Cron expression", every: "Interval", at: "Time" };

interface JobFormProps {
  agent?: string | null;
  /** The job to change; without one a new one is added. */
  job?: Job;
  onClose: () => void;
  reload: () => Promise<void>;
}

/** The schedule of a job as it is written in a field. */
function written({ kind, expr = "", everyMs = 0, at = "" }: Job["schedule"]): string {
  if (kind === "cron") return expr;
  if (kind === "at") return at;
  const minutes = everyMs / 60_000;
  return minutes % 60 ? `${minutes}m` : `${minutes / 60}h`;
}

export function JobForm({ agent = null, job, onClose, reload }: JobFormProps) {
  const [name, setName] = useState(job?.name ?? "");
  const [message, setMessage] = useState(job?.message ?? "");
  const [kind, setKind] = useState(job?.schedule.kind ?? "cron");
  const [when, setWhen] = useState(job ? written(job.schedule) : EXAMPLES.cron!);
  const [chosen, setChosen] = useState<string | null>(job?.agentId ?? agent);
  const [problem, setProblem] = useState("");
  const submit = async (event: Event) => {
    event.preventDefault();
    const schedule = job && kind === job.schedule.kind && when === written(job.schedule) ? {} : { [kind]: when };
    const fields = { name, message, ...schedule };
    try {
      if (job) await call("cron.edit", { job: job.id, fields });
      else await call("cron.add", { agent: chosen, fields });
      await reload();
      onClose();
      toast(job ? `“${name}” was changed.` : `“${name}” was added.`, undefined, "calendar-clock");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <Dialog title={job ? "Change the job" : "New job"} onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <Field label="Name" value={name} onInput={setName} required maxlength={100} />
        <Field label="Message to the agent" value={message} onInput={setMessage} rows={3} required />
        {!job && !agent && agents.value.length > 1 && <AgentChoice value={chosen} onChange={setChosen} />}
        <Select
          label="When"
          value={kind}
          options={KINDS}
          onChange={(value) => {
            setKind(value);
            setWhen(EXAMPLES[value] ?? "");
          }}
        />
        <Field label={NAMES[kind] ?? "When"} value={when} onInput={setWhen} hint={<Explained kind={kind} when={when} />} mono required />
        {problem && (
          <p class="problem" role="alert">
            {problem}
          </p>
        )}
        <div class="row end">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind="primary">
            {job ? "Save" : "Add the job"}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** A schedule in words with its next times, as the gateway reads it. */
function Explained({ kind, when }: { kind: string; when: string }) {
  const [next, setNext] = useState<{ times: string[]; problem: string }>({ times: [], problem: "" });
  useEffect(() => {
    let isCurrent = true;
    const timer = setTimeout(() => {
      call("cron.preview", { fields: { [kind]: when } }).then(
        ({ times }) => isCurrent && setNext({ times, problem: "" }),
        (error: Error) => isCurrent && setNext({ times: [], problem: error.message }),
      );
    }, PAUSE_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [kind, when]);
  const words = kind === "cron" ? describeCron(when) : `For example ${EXAMPLES[kind]}`;
  return (
    <>
      {words}
      {next.times.length > 0 && `, next ${next.times.map(moment).join(" · ")}`}
      {next.problem && <span class="problem"> {next.problem}</span>}
    </>
  );
}

function moment(when: string): string {
  return new Date(when).toLocaleString([], { weekday: "short", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
}
