// The skills of an agent, and why one is not used.
import { useState } from "preact/hooks";
import { useMethod } from "../core/resource";
import { withCode } from "../core/text";
import { AgentChoice } from "../parts/agent_choice";
import { Badge, Tabs } from "../parts/bits";
import { SearchField } from "../parts/field";
import { EmptyState } from "../parts/states";
import { Loaded, View } from "../parts/view";

const SHOWN = [
  ["all", "All"],
  ["ready", "Ready"],
  ["missing", "Not used"],
] as const;

export default function SkillsView() {
  const [agent, setAgent] = useState<string | null>(null);
  const [wanted, setWanted] = useState("");
  const [shown, setShown] = useState("all");
  const skills = useMethod("skills.list", { agent }, ["config.changed"]);
  return (
    <View
      title="Skills"
      about="Folders that teach an agent a task. It reads one when it needs it."
      actions={<AgentChoice value={agent} onChange={setAgent} />}
    >
      <SearchField label="Filter skills" value={wanted} onInput={setWanted} />
      <Tabs label="Which skills" tabs={SHOWN} current={shown} onChange={setShown} />
      <Loaded from={skills}>
        {({ skills: all }) => {
          const words = wanted.trim().toLowerCase();
          const found = all.filter(
            ({ name, description, eligible }) =>
              `${name} ${description}`.toLowerCase().includes(words) &&
              (shown === "all" || (shown === "ready") === eligible),
          );
          if (!found.length) {
            return (
              <EmptyState icon="book-open" title={all.length ? "No skill fits" : "No skills yet"}>
                Put a folder with a <code>SKILL.md</code> into <code>skills/</code> of the workspace.
              </EmptyState>
            );
          }
          return (
            <ul class="cards" aria-label="Skills">
              {found.map((skill) => (
                <li key={`${skill.tier}:${skill.name}`} class="card stack">
                  <p class="row between">
                    <b>
                      <bdi>{skill.name}</bdi>
                    </b>
                    <Badge tone={skill.eligible ? "ok" : "warn"}>{skill.eligible ? "ready" : "not used"}</Badge>
                  </p>
                  <p class="clipped">{skill.description}</p>
                  {skill.reasons.length > 0 && <p class="skill-reason">{withCode(skill.reasons.join(" · "))}</p>}
                  <p class="faint" title={skill.location}>
                    {skill.tier}
                  </p>
                </li>
              ))}
            </ul>
          );
        }}
      </Loaded>
    </View>
  );
}
