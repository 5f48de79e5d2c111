// What is risky, who may do what, and what happened.
import { useState } from "preact/hooks";
import { attempting, call, may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { openPanel } from "../core/panel";
import { reveal, shorten } from "../core/text";
import type { MatrixRow } from "../generated/wire";
import { AgentChoice } from "../parts/agent_choice";
import { Badge, Tabs, Time, type Tone } from "../parts/bits";
import { Button } from "../parts/button";
import { SearchField } from "../parts/field";
import { EmptyState, ErrorCard } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Loaded, View } from "../parts/view";

const TABS = [
  ["findings", "Findings"],
  ["matrix", "Who may do what"],
  ["log", "Audit log"],
] as const;

export default function SecurityView() {
  const [tab, setTab] = useState("findings");
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
    await attempting(() => call("security.audit", { fix: true }));
    await report.reload();
  };
  return (
    <Loaded from={report}>
      {({ findings }) => {
        if (!findings.length) return <EmptyState icon="shield-check" title="No risks were found" />;
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
            <ul class="rows" aria-label="Findings">
              {ordered.map((finding, place) => (
                <li key={`${finding.id} ${finding.where} ${place}`}>
                  <Badge tone={TONES[finding.severity] ?? "plain"}>{finding.severity}</Badge>
                  <div class="row-text">
                    <p>{reveal(finding.what)}</p>
                    <p class="faint">
                      {finding.remedy} <code>{finding.where}</code>
                    </p>
                  </div>
                </li>
              ))}
            </ul>
          </>
        );
      }}
    </Loaded>
  );
}

const DECISIONS: Record<string, Tone> = { allow: "ok", ask: "warn", deny: "danger" };

function Matrix() {
  const [agent, setAgent] = useState<string | null>(null);
  const matrix = useMethod("security.matrix", may("admin") ? { agent } : null, ["config.changed"]);
  const columns: Column<MatrixRow>[] = [
    { title: "Who", cell: ({ principal }) => principal, by: ({ principal }) => principal },
    { title: "Agent", cell: ({ agent: of }) => of, by: ({ agent: of }) => of },
    { title: "May", cell: ({ capability }) => capability, by: ({ capability }) => capability },
    {
      title: "Decision",
      cell: ({ decision }) => <Badge tone={DECISIONS[decision] ?? "plain"}>{decision}</Badge>,
      by: ({ decision }) => decision,
    },
    { title: "Because", cell: ({ by }) => <span class="faint">{by}</span> },
  ];
  return (
    <>
      <AgentChoice value={agent} onChange={setAgent} />
      <Loaded from={matrix}>
        {({ rows }) => (
          <Table
            label="Who may do what"
            columns={columns}
            rows={rows}
            keyOf={(row) => `${row.principal} ${row.agent} ${row.capability}`}
          />
        )}
      </Loaded>
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
  const log = useMethod("audit.log", may("admin") ? { limit: 500 } : null, ["config.changed", "approvals.changed"]);
  return (
    <>
      <SearchField label="Filter the log" value={wanted} onInput={setWanted} />
      <Loaded from={log}>
        {({ entries, damage }) => {
          const words = wanted.trim().toLowerCase();
          const found = (entries as AuditEntry[]).filter((each) => JSON.stringify(each).toLowerCase().includes(words));
          return (
            <>
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
                            {each.kind.replaceAll("_", " ")}
                          </button>
                          <p class="faint">
                            {shorten(each.who ?? each.actor ?? "", 80)} {shorten(JSON.stringify(each.details ?? ""), 140)}
                          </p>
                        </div>
                        <Time when={each.at ?? each.time} />
                      </li>
                    ))}
                </ul>
              ) : (
                <EmptyState icon="scroll-text" title="No entries" />
              )}
            </>
          );
        }}
      </Loaded>
    </>
  );
}

function showEntry(entry: AuditEntry): void {
  openPanel("Entry of the audit log", () => (
    <pre class="wrapped" tabindex={0} role="group" aria-label="Entry">
      {reveal(JSON.stringify(entry, null, 2))}
    </pre>
  ));
}
