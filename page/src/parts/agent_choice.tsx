// The agent that a view is about, if there are several.
import { agents, defaultAgent } from "../core/stores";
import { Select } from "./field";

interface ChoiceProps {
  value: string | null;
  onChange: (agent: string | null) => void;
  /** Whether null means all agents; otherwise it is the default agent. */
  all?: boolean;
}

export function AgentChoice({ value, onChange, all }: ChoiceProps) {
  if (agents.value.length < 2) return null;
  const named = agents.value.map(({ id, emoji, name }) => [id, `${emoji} ${name}`.trim()] as const);
  const options = all ? ([["", "All agents"], ...named] as const) : named;
  const chosen = value ?? (all ? "" : defaultAgent.value);
  return <Select label="Agent" hideLabel value={chosen} options={options} onChange={(id) => onChange(id || null)} />;
}
