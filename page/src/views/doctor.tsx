// The state of the installation: what is wrong, why it matters, and what to do.
import { attempting, call, may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { withCode } from "../core/text";
import { duration } from "../core/time";
import type { Status } from "../generated/wire";
import { Badge, type Tone } from "../parts/bits";
import { Button } from "../parts/button";
import { EmptyState, ErrorCard } from "../parts/states";
import { Loaded, View } from "../parts/view";

const TONES: Record<string, Tone> = { problem: "danger", warning: "warn", remark: "plain" };

export default function DoctorView() {
  const report = useMethod("doctor", may("admin") ? {} : null);
  const status = useMethod("status");
  const fix = async () => {
    await attempting(() => call("doctor", { fix: true }));
    await report.reload();
  };
  return (
    <View
      title="Doctor"
      about="Checks the installation; nothing is changed unless you ask for it."
      needs="admin"
      actions={
        <Button icon="refresh-cw" onClick={report.reload}>
          Check again
        </Button>
      }
    >
      <Loaded from={status}>{(data) => <Figures status={data} />}</Loaded>
      <Loaded from={report}>
        {({ findings }) =>
          findings.length ? (
            <>
              {findings.some(({ fixable }) => fixable) && (
                <div>
                  <Button kind="primary" icon="wrench" onClick={fix}>
                    Fix what can be fixed
                  </Button>
                </div>
              )}
              <ul class="rows" aria-label="Findings">
                {findings.map((finding, place) => (
                  <li key={place}>
                    <span class="row-state">
                      <Badge tone={TONES[finding.severity] ?? "plain"}>{finding.severity}</Badge>
                    </span>
                    <div class="row-text">
                      <p>
                        <b>{finding.area}</b>: {withCode(finding.what)}
                      </p>
                      <p class="faint">
                        {withCode(finding.why)} {withCode(finding.todo)}
                      </p>
                    </div>
                  </li>
                ))}
              </ul>
            </>
          ) : (
            <EmptyState icon="stethoscope" title="Everything is well">
              Files, settings, models, memory and the sandbox were checked.
            </EmptyState>
          )
        }
      </Loaded>
    </View>
  );
}

function Figures({ status }: { status: Status }) {
  const figures = [
    ["Version", status.version],
    ["Up", duration(status.uptimeSeconds)],
    ["Memory", `${status.memoryMb.toFixed(0)} MB`],
    ["Turns", status.turnsWaiting ? `${status.turnsRunning} + ${status.turnsWaiting} waiting` : String(status.turnsRunning)],
    ["Clients", String(status.connections)],
  ] as const;
  return (
    <>
      {status.readOnly && <ErrorCard problem={status.readOnly} />}
      {status.configProblems.map((problem) => (
        <ErrorCard key={problem} problem={problem} />
      ))}
      <dl class="figures small-figures">
        {figures.map(([name, value]) => (
          <div key={name} class="card">
            <dt class="faint">{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <p class="faint">
        <code>{status.home}</code> · <code>{status.address}</code>
      </p>
    </>
  );
}
