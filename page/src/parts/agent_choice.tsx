// The agent that a view is about, if there are several.
import { agents, defaultAgent } from "../core/stores";
import { Select } from "./field";

export function AgentChoice({ value, onChange }: { value: string | null; onChange: (agent: string) => void }) {
  if (agents.value.length < 2) return null;
  const options = agents.value.map(({ id, emoji, name }) => [id, `${emoji} ${name}`.trim()] as const);
  return <Select label="Agent" hideLabel value={value ?? defaultAgent.value} options={options} onChange={onChange} />;
}
