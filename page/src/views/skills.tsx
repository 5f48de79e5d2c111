// The skills of an agent, why one is not used, and the review of what is new, changed or proposed.
import { useState } from "preact/hooks";
import { knows, may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { tabOf } from "../core/router";
import { withCode } from "../core/text";
import type { SkillRow } from "../generated/wire";
import { AgentChoice } from "../parts/agent_choice";
import { Badge, Tabs } from "../parts/bits";
import { SearchField } from "../parts/field";
import { EmptyState } from "../parts/states";
import { Loaded, View } from "../parts/view";
import { SkillReview, useReviews } from "./skill_review";

const SHOWN = [
  ["all", "All"],
  ["ready", "Ready"],
  ["missing", "Not used"],
] as const;

export default function SkillsView() {
  const [agent, setAgent] = useState<string | null>(null);
  const shown = tabOf("skills", [...SHOWN, ["review"]]);
  return (
    <View
      title="Skills"
      about="Folders that teach an agent a task. It reads one when it needs it."
      actions={<AgentChoice value={agent} onChange={setAgent} />}
    >
      <AgentSkills key={agent} agent={agent} tab={shown} />
    </View>
  );
}

interface SkillsProps {
  agent: string | null;
  /** The tab and the way to change it, if the address names it. */
  tab?: [string, (id: string) => void];
}

export function AgentSkills({ agent, tab }: SkillsProps) {
  const [wanted, setWanted] = useState("");
  const own = useState("all");
  const [shown, setShown] = tab ?? own;
  const skills = useMethod("skills.list", { agent }, ["config.changed"]);
  const mayReview = may("approve") && knows("skills.review.list");
  const reviews = useReviews(agent, mayReview);
  const reviewTab = [
    "review",
    <>
      Review {reviews.count > 0 && <span class="count">{reviews.count}</span>}
    </>,
  ] as const;
  return (
    <>
      <Tabs label="Which skills" tabs={mayReview ? [...SHOWN, reviewTab] : SHOWN} current={shown} onChange={setShown} />
      {shown === "review" ? (
        <SkillReview agent={agent} reviews={reviews} />
      ) : (
        <>
          <SearchField label="Filter skills" value={wanted} onInput={setWanted} />
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
                    <SkillCard key={`${skill.tier}:${skill.name}`} skill={skill} />
                  ))}
                </ul>
              );
            }}
          </Loaded>
        </>
      )}
    </>
  );
}

function SkillCard({ skill }: { skill: SkillRow }) {
  return (
    <li class="card skill-card">
      <p class="row between">
        <b>
          <bdi>{skill.name}</bdi>
        </b>
        <Badge tone={skill.eligible ? "ok" : "warn"}>{skill.eligible ? "ready" : "not used"}</Badge>
      </p>
      <p class="clipped">{skill.description}</p>
      {skill.reasons.length > 0 && <p class="skill-reason">{withCode(skill.reasons.join(" · "))}</p>}
      <p class="faint card-foot" title={skill.location}>
        {skill.tier}
      </p>
    </li>
  );
}
