// The skills of an agent, why one is not used, and the review of what is new, changed or proposed.
import { useState } from "preact/hooks";
import { MarkdownView } from "../chat/messages";
import { attempting, knows, may } from "../core/gateway";
import { openPanel } from "../core/panel";
import { useMethod } from "../core/resource";
import { tabOf } from "../core/router";
import { changeSettings } from "../core/settings";
import { reveal, withCode } from "../core/text";
import type { SkillRow } from "../generated/wire";
import { AgentChoice } from "../parts/agent_choice";
import { Avatar, Tabs } from "../parts/bits";
import { SearchField, Toggle } from "../parts/field";
import { EmptyState } from "../parts/states";
import { toast } from "../parts/toast";
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
                    <SkillCard key={`${skill.tier}:${skill.name}`} skill={skill} agent={agent} />
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

const TIERS: Record<string, string> = {
  explicit: "given at the start",
  workspace: "in the workspace",
  project: "in the workspace (.agents)",
  personal: "in your home folder",
  managed: "installed",
  plugin: "of a plugin",
  bundled: "comes with Retinue",
  extra: "of a configured folder",
};

/** A picture of a skill: its own sign, else its first letter. */
function SkillMark({ skill }: { skill: SkillRow }) {
  return <Avatar name={skill.name} emoji={skill.emoji} size={36} />;
}

function SkillCard({ skill, agent }: { skill: SkillRow; agent: string | null }) {
  return (
    <li class="card skill-card">
      <button type="button" class="skill-open" onClick={() => openPanel(skill.name, () => <SkillPanel skill={skill} agent={agent} />)}>
        <SkillMark skill={skill} />
        <span class="row-text">
          <b>
            <bdi>{skill.name}</bdi>
          </b>
          <span class="faint">{TIERS[skill.tier] ?? skill.tier}</span>
        </span>
        <span class={`state-dot ${skill.eligible ? "ok" : "warn"}`} title={skill.eligible ? "Ready" : "Not used"}>
          <span class="unseen">{skill.eligible ? "ready" : "not used"}</span>
        </span>
      </button>
      <p class="clipped">{reveal(skill.description)}</p>
      {skill.reasons.length > 0 && <p class="skill-reason">{withCode(skill.reasons.join(" · "))}</p>}
    </li>
  );
}

/** What a skill says, why it is or is not used, and a switch. */
function SkillPanel({ skill, agent }: { skill: SkillRow; agent: string | null }) {
  const shown = useMethod("skills.show", { agent, name: skill.name }, ["config.changed"]);
  const [isOff, setOff] = useState(skill.reasons.some((reason) => reason.startsWith("switched off")));
  const turn = (enabled: boolean) => {
    setOff(!enabled);
    void attempting(async () => {
      await changeSettings({ [`skills.entries.${skill.key}.enabled`]: enabled });
      toast(`“${skill.name}” is ${enabled ? "on" : "off"}.`);
    });
  };
  return (
    <div class="stack">
      <p>{reveal(skill.description)}</p>
      {may("admin") && <Toggle label="Use this skill" checked={!isOff} onChange={turn} />}
      {skill.reasons.length > 0 && (
        <ul class="reasons-list">
          {skill.reasons.map((reason) => (
            <li key={reason}>{withCode(reason)}</li>
          ))}
        </ul>
      )}
      <dl class="facts roomy">
        <dt>From</dt>
        <dd>{TIERS[skill.tier] ?? skill.tier}</dd>
        <dt>File</dt>
        <dd>
          <code>{skill.location}</code>
        </dd>
      </dl>
      <Loaded from={shown}>
        {({ text, files }) => (
          <>
            {files.length > 1 && (
              <p>
                {files.slice(0, 20).map((file) => (
                  <span key={file} class="tag">
                    {file}
                  </span>
                ))}
              </p>
            )}
            <section class="skill-text" aria-label="Instructions">
              <MarkdownView text={text.replace(/^---\n[\s\S]*?\n---\n/, "")} />
            </section>
          </>
        )}
      </Loaded>
    </div>
  );
}
