// Skills that wait for the owner: new or changed folders, which are off until they are accepted, and proposals of agents.
import { useState } from "preact/hooks";
import { call } from "../core/gateway";
import { closePanel, openPanel } from "../core/panel";
import { type Resource, useMethod } from "../core/resource";
import { agentOf } from "../core/stores";
import { reveal, shorten } from "../core/text";
import type { ProposalList, ProposedChange, ReviewedSkill, ScanFinding, SkillReviewList } from "../generated/wire";
import { Badge, Time } from "../parts/bits";
import { Button } from "../parts/button";
import { UnifiedDiff } from "../parts/diff";
import { confirm } from "../parts/dialog";
import { Field } from "../parts/field";
import { Icon } from "../parts/icon";
import { EmptyState, ErrorCard } from "../parts/states";
import { Loaded } from "../parts/view";

export interface Reviews {
  changed: Resource<SkillReviewList>;
  proposed: Resource<ProposalList>;
  count: number;
}

export function useReviews(agent: string | null, isAllowed: boolean): Reviews {
  const changed = useMethod("skills.review.list", isAllowed ? { agent } : null);
  const proposed = useMethod("skills.proposals.list", isAllowed ? {} : null);
  return { changed, proposed, count: (changed.data?.skills.length ?? 0) + pendingOf(proposed.data).length };
}

function pendingOf(found: ProposalList | null): ProposedChange[] {
  return (found?.proposals ?? []).filter(({ state }) => state === "pending");
}

export function SkillReview({ agent, reviews }: { agent: string | null; reviews: Reviews }) {
  return (
    <Loaded from={reviews.changed}>
      {({ skills }) => (
        <Loaded from={reviews.proposed}>
          {(found) => {
            const pending = pendingOf(found);
            const decided = found.proposals.filter(({ state }) => state !== "pending");
            return (
              <>
                {!skills.length && !pending.length && (
                  <EmptyState icon="shield-check" title="Nothing to review">
                    A skill that is new or was changed is off until you accept it here. Agents may also propose skills.
                  </EmptyState>
                )}
                {skills.length > 0 && (
                  <ul class="rows" aria-label="New and changed skills">
                    {skills.map((skill) => (
                      <ChangedRow key={skill.path} skill={skill} agent={agent} reload={reviews.changed.reload} />
                    ))}
                  </ul>
                )}
                {pending.length > 0 && (
                  <section class="stack" aria-label="Proposals">
                    <h2>Proposed by agents</h2>
                    <ul class="rows">
                      {pending.map((proposal) => (
                        <ProposalRow key={proposal.id} proposal={proposal} reload={reviews.proposed.reload} />
                      ))}
                    </ul>
                  </section>
                )}
                {decided.length > 0 && <Decided proposals={decided} />}
              </>
            );
          }}
        </Loaded>
      )}
    </Loaded>
  );
}

interface ChangedProps {
  skill: ReviewedSkill;
  agent: string | null;
  reload: () => Promise<void>;
}

function ChangedRow({ skill, agent, reload }: ChangedProps) {
  return (
    <li>
      <span class="row-icon">
        <Icon name="book-open" size={18} />
      </span>
      <div class="row-text">
        <p class="row wrap">
          <b>
            <bdi>{skill.name}</bdi>
          </b>
          <Badge tone="warn">{skill.state}</Badge>
        </p>
        <p class="faint">{skill.reason || `${skill.tier} skill; off until you accept it`}</p>
      </div>
      <Button
        onClick={() => openPanel(`Skill ${skill.name}`, () => <ChangedDetails skill={skill} agent={agent} reload={reload} />)}
      >
        Review
      </Button>
    </li>
  );
}

function ChangedDetails({ skill, agent, reload }: ChangedProps) {
  const shown = useMethod("skills.review.show", { agent, name: skill.name });
  return (
    <Loaded from={shown}>
      {({ diff, digest, findings }) => (
        <div class="stack">
          <p class="faint">
            <code>{skill.path}</code>
          </p>
          <Findings findings={findings} />
          <UnifiedDiff text={diff} label={`Changes of ${skill.name}`} />
          <div class="panel-actions">
            <Button
              kind="primary"
              icon="check"
              onClick={async () => {
                await call("skills.review.accept", { agent, name: skill.name, digest });
                closePanel();
                await reload();
              }}
            >
              Accept this content
            </Button>
            <Button onClick={closePanel}>Leave it off</Button>
          </div>
        </div>
      )}
    </Loaded>
  );
}

function Findings({ findings }: { findings: readonly ScanFinding[] }) {
  if (!findings.length) return <p class="found-nothing">The scan found nothing that looks like an attack.</p>;
  return (
    <ul class="plain-list" aria-label="Findings of the scan">
      {findings.map((each, place) => (
        <li key={place} class="finding">
          <Badge tone={each.severity === "high" || each.severity === "critical" ? "danger" : "warn"}>{each.severity}</Badge>
          <span>
            {each.rule} in <code>{each.file}</code>, line {each.line}: <code>{reveal(shorten(each.text, 200))}</code>
          </span>
        </li>
      ))}
    </ul>
  );
}

function ProposalRow({ proposal, reload }: { proposal: ProposedChange; reload: () => Promise<void> }) {
  return (
    <li>
      <span class="row-icon">
        <Icon name="sparkles" size={18} />
      </span>
      <div class="row-text">
        <p class="row wrap">
          <b>
            <bdi>{proposal.name}</bdi>
          </b>
          <Badge tone="accent">{proposal.kind === "new" ? "new skill" : "change"}</Badge>
          {proposal.untrusted && <Badge tone="warn">after text from outside</Badge>}
        </p>
        <p class="faint">
          {agentOf(proposal.agent)?.name ?? proposal.agent} · <Time when={proposal.createdAt} /> · {reveal(shorten(proposal.reason, 160))}
        </p>
      </div>
      <Button
        onClick={() => openPanel(`Proposal ${proposal.name}`, () => <ProposalPanel proposal={proposal} reload={reload} />)}
      >
        Review
      </Button>
    </li>
  );
}

function ProposalPanel({ proposal, reload }: { proposal: ProposedChange; reload: () => Promise<void> }) {
  const shown = useMethod("skills.proposals.show", { id: proposal.id });
  const [reason, setReason] = useState("");
  const end = async () => {
    closePanel();
    await reload();
  };
  const accept = async (isForced: boolean) => {
    if (isForced && !(await confirm("Accept it anyway?", "The scan found something in it that looks like an attack.", "Accept"))) return;
    await call("skills.proposals.accept", { id: proposal.id, force: isForced });
    await end();
  };
  return (
    <Loaded from={shown}>
      {({ diff, notes, problem }) => (
        <div class="stack">
          <p>{reveal(proposal.reason)}</p>
          {notes.length > 0 && (
            <ul class="explanation">
              {notes.map((note) => (
                <li key={note}>{reveal(note)}</li>
              ))}
            </ul>
          )}
          {problem && <ErrorCard problem={problem} />}
          <UnifiedDiff text={diff} label={`Changes of ${proposal.name}`} />
          <Field label="Why not, if you reject it" value={reason} onInput={setReason} maxlength={400} />
          <div class="panel-actions">
            <Button kind={problem ? "danger" : "primary"} icon="check" onClick={() => accept(Boolean(problem))}>
              {problem ? "Accept anyway" : "Accept"}
            </Button>
            <Button
              kind="danger-quiet"
              onClick={() => call("skills.proposals.reject", { id: proposal.id, reason: reason.trim() }).then(end)}
            >
              Reject
            </Button>
          </div>
        </div>
      )}
    </Loaded>
  );
}

function Decided({ proposals }: { proposals: readonly ProposedChange[] }) {
  return (
    <details class="fold">
      <summary>Decided before ({proposals.length})</summary>
      <ul class="plain-list fold-body">
        {proposals.map((each) => (
          <li key={each.id} class="row wrap">
            <bdi>{each.name}</bdi> <Badge tone={each.state === "accepted" ? "ok" : "plain"}>{each.state}</Badge>
            <span class="faint">{reveal(shorten(each.because, 120))}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
