// What is risky, who may do what, and what happened.
import { useState } from "preact/hooks";
import { attempting, call, may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { addressOf, tabOf } from "../core/router";
import { openPanel } from "../core/panel";
import { humanize, plural, reveal, shorten, withCode } from "../core/text";
import { defaultAgent, nameOfSession } from "../core/stores";
import type { RiskFinding } from "../generated/wire";
import { AgentChoice } from "../parts/agent_choice";
import { Badge, Tabs, Time, type Tone } from "../parts/bits";
import { Button } from "../parts/button";
import { SearchField, Select } from "../parts/field";
import { CapabilityMatrix } from "../parts/matrix";
import { EmptyState, ErrorCard } from "../parts/states";
import { toast } from "../parts/toast";
import { Loaded, View } from "../parts/view";

const TABS = [
  ["findings", "Findings"],
  ["matrix", "Who may do what"],
  ["log", "Audit log"],
] as const;

export default function SecurityView() {
  const [tab, setTab] = tabOf("security", TABS);
  return (
    <View title="Security" about="Risky settings, effective rights, and a log that shows when it was changed." needs="admin">
      <Tabs label="Part" tabs={TABS} current={tab} onChange={setTab} />
      {tab === "findings" && <Findings />}
      {tab === "matrix" && <Matrix />}
      {tab === "log" && <AuditLog />}
    </View>
  );
}

const TONES: Record<string, Tone> = { critical: "danger", high: "danger", warn: "warn", warning: "warn", medium: "warn" };
const ORDER = ["critical", "high", "medium", "warn", "warning", "low", "info"];

function Findings() {
  const report = useMethod("security.audit", may("admin") ? {} : null);
  const fix = async () => {
    const done = await attempting(() => call("security.audit", { fix: true }));
    await report.reload();
    if (done) toast(`${plural(done.fixed.length, "permission")} restricted.`, undefined, "shield-check");
  };
  return (
    <Loaded from={report}>
      {({ findings }) => {
        if (!findings.length) return (
            <EmptyState icon="shield-check" title="No risks were found">
              Settings, permissions of files and tokens were checked.
            </EmptyState>
          );
        const rank = (severity: string) => ORDER.indexOf(severity);
        const ordered = [...findings].sort((a, b) => rank(a.severity) - rank(b.severity));
        return (
          <>
            {findings.some(({ fixable }) => fixable) && (
              <div>
                <Button kind="primary" icon="wrench" onClick={fix}>
                  Fix the permissions of files
                </Button>
              </div>
            )}
            {[...new Set(ordered.map(({ severity }) => severity))].map((severity) => {
              const own = ordered.filter((each) => each.severity === severity);
              return (
                <section key={severity} class="stack" aria-label={`Severity ${severity}`}>
                  <h2 class="row">
                    <Badge tone={TONES[severity] ?? "plain"}>{severity}</Badge> <span class="faint">{own.length}</span>
                  </h2>
                  <ul class="rows" aria-label={`Findings, ${severity}`}>
                    {own.map((finding, place) => (
                      <FindingRow key={place} finding={finding} />
                    ))}
                  </ul>
                </section>
              );
            })}
          </>
        );
      }}
    </Loaded>
  );
}

/** A finding with the place that it is about; a key leads to its setting. */
function FindingRow({ finding }: { finding: RiskFinding }) {
  const isKey = /^[a-z][\w-]*(\.[\w<>[\]-]+)+$/i.test(finding.where) && !finding.where.includes("/");
  return (
    <li>
      <div class="row-text">
        <p>{withCode(finding.what)}</p>
        <p class="faint">
          {withCode(finding.remedy)} <code>{finding.where}</code>
        </p>
      </div>
      {isKey && (
        <span class="row-actions">
          <a class="button" href={addressOf("config", finding.where)}>
            Open the setting
          </a>
        </span>
      )}
    </li>
  );
}

function Matrix() {
  const [agent, setAgent] = useState<string | null>(null);
  const matrix = useMethod("security.matrix", may("admin") ? { agent: agent ?? defaultAgent.value } : null, ["config.changed"]);
  return (
    <>
      <div class="row">
        <AgentChoice value={agent} onChange={setAgent} />
      </div>
      <Loaded from={matrix}>{({ rows }) => <CapabilityMatrix label="Who may do what" rows={rows} />}</Loaded>
    </>
  );
}

interface AuditEntry {
  at?: string;
  time?: string;
  kind: string;
  who?: string;
  actor?: string;
  seq?: number;
  details?: unknown;
}

function AuditLog() {
  const [wanted, setWanted] = useState("");
  const [kind, setKind] = useState("");
  const log = useMethod("audit.log", may("admin") ? { limit: 500 } : null, ["config.changed", "approvals.changed"]);
  return (
    <>
      <Loaded from={log}>
        {({ entries, damage }) => {
          const words = wanted.trim().toLowerCase();
          const all = entries as AuditEntry[];
          const kinds = [...new Set(all.map((each) => each.kind))].sort();
          const found = all.filter(
            (each) => (!kind || each.kind === kind) && JSON.stringify(each).toLowerCase().includes(words),
          );
          return (
            <>
              <div class="row filters">
                <SearchField label="Filter the log" value={wanted} onInput={setWanted} />
                <Select
                  label="Kind"
                  hideLabel
                  value={kind}
                  options={[["", "All kinds"], ...kinds.map((each) => [each, humanize(each)] as const)]}
                  onChange={setKind}
                />
              </div>
              {damage.map((line) => (
                <ErrorCard key={line} problem={`The log was changed: ${line}`} />
              ))}
              {found.length ? (
                <ul class="rows" aria-label="Audit log">
                  {found
                    .reverse()
                    .slice(0, 200)
                    .map((each, place) => (
                      <li key={place}>
                        <div class="row-text">
                          <button type="button" class="link" onClick={() => showEntry(each)}>
                            {humanize(each.kind)}
                          </button>
                          <p class="faint">
                            {shorten(each.who ?? each.actor ?? "", 80)} · {summarise(each.details)}
                          </p>
                        </div>
                        <Time when={each.at ?? each.time} />
                      </li>
                    ))}
                </ul>
              ) : (
                <EmptyState icon="scroll-text" title={all.length ? "No entry fits" : "The log is empty"}>
                  Decisions on approvals, changes of settings, pairings and the like are written down here.
                </EmptyState>
              )}
            </>
          );
        }}
      </Loaded>
    </>
  );
}

/** The values of an entry that people recognise. */
function summarise(details: unknown): string {
  const values = details && typeof details === "object" ? Object.entries(details) : [];
  const told = values.filter(([name, value]) => typeof value !== "object" && !/^(id|hash|binding|digest)$/.test(name));
  const words = told.map(([, value]) => String(value)).filter(Boolean);
  return shorten(words.map((word) => (/^agent:\w/.test(word) ? nameOfSession(word) : word)).join(" · "), 160);
}

function showEntry(entry: AuditEntry): void {
  openPanel("Entry of the audit log", () => (
    <pre class="wrapped" tabindex={0} role="group" aria-label="Entry">
      {reveal(JSON.stringify(entry, null, 2))}
    </pre>
  ));
}
