// Every tool, whether an agent has it, and the rule that decides it.
import { useState } from "preact/hooks";
import { openPanel } from "../core/panel";
import { useMethod } from "../core/resource";
import { withCode } from "../core/text";
import type { ToolRow } from "../generated/wire";
import type { IconName } from "../generated/icons";
import { Badge, type Tone } from "../parts/bits";
import { SearchField } from "../parts/field";
import { Icon } from "../parts/icon";
import { EmptyState } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Loaded } from "../parts/view";

const DECISIONS: Record<ToolRow["decision"], readonly [Tone, IconName, string]> = {
  allow: ["ok", "check", "allowed"],
  ask: ["warn", "clock", "asks first"],
  deny: ["danger", "x", "not given"],
};

export function AgentTools({ agent }: { agent: string }) {
  const [wanted, setWanted] = useState("");
  const tools = useMethod("tools.list", { agent }, ["config.changed"]);
  return (
    <>
      <SearchField label="Filter tools" value={wanted} onInput={setWanted} />
      <Loaded from={tools}>
        {({ tools: all }) => {
          const words = wanted.trim().toLowerCase();
          const found = all.filter(({ name, summary }) => `${name} ${summary}`.toLowerCase().includes(words));
          if (!found.length) return <EmptyState icon="wrench" title="No tool fits" />;
          return <Table label="Tools" columns={COLUMNS} rows={found} keyOf={({ name }) => name} />;
        }}
      </Loaded>
      <p class="faint">
        For you, in the main conversation of this agent. What other people may do with it is in “Access”.
      </p>
    </>
  );
}

const ORDER = { deny: 0, ask: 1, allow: 2 };
const COLUMNS: readonly Column<ToolRow>[] = [
  {
    title: "Tool",
    cell: (tool) => (
      <button type="button" class="link mono" onClick={() => showTool(tool)}>
        {tool.name}
      </button>
    ),
    by: ({ name }) => name,
  },
  { title: "Does", cell: ({ summary }) => summary, isWide: true },
  {
    title: "Decision",
    cell: ({ decision }) => {
      const [tone, icon, says] = DECISIONS[decision];
      return (
        <Badge tone={tone}>
          <Icon name={icon} size={12} /> {says}
        </Badge>
      );
    },
    by: ({ decision }) => ORDER[decision],
  },
  { title: "Because", cell: ({ because }) => <span class="faint">{withCode(because)}</span>, isWide: true },
  {
    title: "In prompts",
    cell: ({ deferred, ownerOnly }) => (
      <span class="faint">{[deferred ? "after a search" : "always", ownerOnly && "only for you"].filter(Boolean).join(", ")}</span>
    ),
    by: ({ deferred }) => Number(deferred),
  },
];

function showTool(tool: ToolRow): void {
  const [tone, , says] = DECISIONS[tool.decision];
  openPanel(tool.name, () => (
    <div class="stack">
      <p>{tool.summary}</p>
      <dl class="facts roomy">
        <dt>Decision</dt>
        <dd>
          <Badge tone={tone}>{says}</Badge>
        </dd>
        <dt>Because</dt>
        <dd>{withCode(tool.because)}</dd>
        <dt>Decided by</dt>
        <dd>the layer “{tool.layer}” of the policy</dd>
        <dt>In the prompt</dt>
        <dd>{tool.deferred ? "only after the agent searched for it" : "always"}</dd>
      </dl>
      <p class="faint">
        Rules for tools are in the configuration under <code>tools</code> and <code>agents.list[].tools</code>.
      </p>
    </div>
  ));
}
