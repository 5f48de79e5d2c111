// What waits for the owner's decision, what was decided, and the rules that need no decision.
import { useState } from "preact/hooks";
import { ApprovalCard } from "../chat/approvals";
import { call, may } from "../core/gateway";
import { openPanel } from "../core/panel";
import { useMethod } from "../core/resource";
import { addressOf, tabOf } from "../core/router";
import { agentOf, approvals, nameOfSession } from "../core/stores";
import { reveal, shorten } from "../core/text";
import type { AllowRule, ApprovalRecord } from "../generated/wire";
import { AgentChoice } from "../parts/agent_choice";
import { Badge, Tabs, Time, type Tone } from "../parts/bits";
import { Button, IconButton } from "../parts/button";
import { confirm } from "../parts/dialog";
import { Field } from "../parts/field";
import { EmptyState } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Loaded, View } from "../parts/view";

const TABS = [
  ["pending", "Waiting"],
  ["history", "History"],
  ["rules", "Rules"],
] as const;

export default function ApprovalsView() {
  const [tab, setTab] = tabOf("approvals", TABS);
  return (
    <View title="Approvals" about="What agents may do only after your decision." needs="approve">
      <Tabs label="Which approvals" tabs={TABS} current={tab} onChange={setTab} />
      {tab === "pending" && <Pending />}
      {tab === "history" && <History />}
      {tab === "rules" && <Rules />}
    </View>
  );
}

function Pending() {
  if (!approvals.value.length) {
    return (
      <EmptyState icon="shield-check" title="Nothing waits for you">
        When an agent wants to do something that its rules do not allow, the request appears here and in its conversation.
      </EmptyState>
    );
  }
  return (
    <div class="approval-list">
      {approvals.value.map((pending) => (
        <ApprovalCard key={pending.request.id} pending={pending} isElsewhere />
      ))}
    </div>
  );
}

const STATES: Record<string, readonly [string, Tone]> = {
  pending: ["waiting", "warn"],
  "allowed-once": ["allowed once", "ok"],
  "allowed-always": ["always allowed", "ok"],
  denied: ["denied", "danger"],
  expired: ["no answer", "plain"],
  withdrawn: ["withdrawn", "plain"],
};

function History() {
  const history = useMethod("approvals.history", { limit: 200 }, ["approvals.changed"]);
  const columns: Column<ApprovalRecord>[] = [
    {
      title: "Request",
      cell: (each) => (
        <button type="button" class="link" onClick={() => show(each)}>
          {shorten(each.title, 100)}
        </button>
      ),
    },
    {
      title: "Decision",
      cell: ({ state }) => <Badge tone={STATES[state]?.[1] ?? "plain"}>{STATES[state]?.[0] ?? state}</Badge>,
      by: ({ state }) => state,
    },
    { title: "By", cell: ({ decidedBy }) => <bdi>{decidedBy || "–"}</bdi>, by: ({ decidedBy }) => decidedBy },
    { title: "Asked", cell: ({ askedAt }) => <Time when={askedAt} />, by: ({ askedAt }) => askedAt },
  ];
  return (
    <Loaded from={history}>
      {({ requests }) =>
        requests.length ? (
          <Table label="History of approvals" columns={columns} rows={requests} keyOf={({ id }) => id} />
        ) : (
          <EmptyState icon="shield" title="No agent has asked yet" />
        )
      }
    </Loaded>
  );
}

function show(request: ApprovalRecord): void {
  openPanel("Approval request", () => (
    <div class="stack">
      <p>{reveal(request.title)}</p>
      <pre class="wrapped" tabindex={0} role="group" aria-label="Exact request">
        {reveal(request.detail)}
      </pre>
      <dl class="facts">
        <dt>Tool</dt>
        <dd>{request.tool}</dd>
        <dt>Thread</dt>
        <dd>
          <a href={addressOf("chat", request.sessionKey)}>
            <bdi>{nameOfSession(request.sessionKey)}</bdi>
          </a>
        </dd>
        <dt>Asked</dt>
        <dd>
          <Time when={request.askedAt} />
        </dd>
        <dt>Decided</dt>
        <dd>
          <Time when={request.decidedAt} /> {request.decidedBy && `by ${request.decidedBy}`}
        </dd>
        {request.because && (
          <>
            <dt>Reason</dt>
            <dd>{reveal(request.because)}</dd>
          </>
        )}
      </dl>
    </div>
  ));
}

function Rules() {
  const rules = useMethod("rules.list", {}, ["config.changed", "approvals.changed"]);
  const [pattern, setPattern] = useState("");
  const [agent, setAgent] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  const add = async (event: Event) => {
    event.preventDefault();
    setProblem("");
    try {
      await call("rules.add", { agent, pattern });
      setPattern("");
      await rules.reload();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const remove = async (rule: AllowRule) => {
    const isSure = await confirm("Remove this rule?", `“${rule.pattern}” needs your approval again.`, "Remove");
    if (isSure) await call("rules.remove", { id: rule.id, agent: rule.agent }).then(rules.reload);
  };
  return (
    <>
      {may("admin") && (
        <form class="row wrap rule-form" onSubmit={add}>
          <Field
            label="Allow a command without asking"
            value={pattern}
            onInput={setPattern}
            placeholder="git diff *"
            hint="Only for these words; * stands for one argument."
            problem={problem}
            mono
            required
          />
          <AgentChoice value={agent} onChange={setAgent} />
          <Button type="submit" icon="plus">
            Add the rule
          </Button>
        </form>
      )}
      <Loaded from={rules}>
        {({ rules: all }) =>
          all.length ? (
            <ul class="rows" aria-label="Rules">
              {all.map((rule, place) => (
                <li key={rule.id || place}>
                  <div class="row-text">
                    <code>{reveal(rule.pattern)}</code>
                    <p class="faint">
                      {agentOf(rule.agent)?.name ?? rule.agent} · {rule.id ? `added by ${rule.addedBy ?? "?"}` : rule.source} ·{" "}
                      {rule.uses ? `used ${rule.uses} times` : "not used yet"}
                    </p>
                  </div>
                  {rule.id && may("admin") && (
                    <IconButton icon="trash-2" label={`Remove the rule ${rule.pattern}`} onClick={() => void remove(rule)} />
                  )}
                </li>
              ))}
            </ul>
          ) : (
            <EmptyState icon="list-checks" title="No rules yet">
              “Always allow” on a request adds one, and so does the field above.
            </EmptyState>
          )
        }
      </Loaded>
    </>
  );
}
