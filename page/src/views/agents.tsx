// The agents: what each is, its model, its folder and its jobs.
import { thread } from "../chat/thread";
import { may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { addressOf } from "../core/router";
import { agents, sessions, sessionName } from "../core/stores";
import type { AgentRow } from "../generated/wire";
import { Avatar, Badge, Time } from "../parts/bits";
import { Button } from "../parts/button";
import { EmptyState } from "../parts/states";
import { View } from "../parts/view";

export default function AgentsView() {
  return (
    <View title="Agents" about="Each agent is a folder of Markdown files with a model.">
      {agents.value.length ? (
        <ul class="cards" aria-label="Agents">
          {agents.value.map((agent) => (
            <AgentCard key={agent.id} agent={agent} />
          ))}
        </ul>
      ) : (
        <EmptyState icon="bot" title="No agents yet" />
      )}
    </View>
  );
}

function AgentCard({ agent }: { agent: AgentRow }) {
  const last = sessions.value?.find((row) => row.agent === agent.id);
  const jobs = useMethod("cron.list", { agent: agent.id }).data?.jobs.length ?? 0;
  const skills = useMethod("skills.list", { agent: agent.id }).data?.skills ?? [];
  return (
    <li class="card stack">
      <div class="row">
        <Avatar name={agent.name} emoji={agent.emoji} size={40} />
        <div class="row-text">
          <h2>
            <bdi>{agent.name}</bdi>
          </h2>
          <p class="faint">
            {agent.id} {agent.isDefault && <Badge tone="accent">default</Badge>}
          </p>
        </div>
      </div>
      {(agent.vibe || agent.creature) && (
        <p>
          <bdi>{[agent.creature, agent.vibe].filter(Boolean).join(", ")}</bdi>
        </p>
      )}
      <dl class="facts">
        <dt>Model</dt>
        <dd>{agent.model ?? "none chosen"}</dd>
        <dt>Folder</dt>
        <dd>
          <code>{agent.workspace}</code>
        </dd>
        <dt>Last thread</dt>
        <dd>
          {last ? (
            <>
              <a href={addressOf("chat", last.key)}>
                <bdi>{sessionName(last)}</bdi>
              </a>
              , <Time when={last.updatedAt} />
            </>
          ) : (
            "none yet"
          )}
        </dd>
        <dt>Skills</dt>
        <dd>
          <a href={addressOf("skills")}>{skills.filter(({ eligible }) => eligible).length} ready</a>
        </dd>
        <dt>Jobs</dt>
        <dd>
          <a href={addressOf("automations")}>{jobs}</a>
        </dd>
      </dl>
      {may("write") && (
        <Button icon="message-square" onClick={() => thread.begin(agent.id)}>
          New conversation
        </Button>
      )}
    </li>
  );
}
