// The agents: a card for each, and behind it what it is, its files, tools, skills, jobs and rights.
import { thread } from "../chat/thread";
import { may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { addressOf, go, route } from "../core/router";
import { agents, sessions, sessionName } from "../core/stores";
import type { AgentRow } from "../generated/wire";
import { Avatar, Badge, Tabs, Time } from "../parts/bits";
import { Button } from "../parts/button";
import { Icon } from "../parts/icon";
import { CapabilityMatrix } from "../parts/matrix";
import { EmptyState, NoRight } from "../parts/states";
import { Loaded, View } from "../parts/view";
import { AgentTools } from "./agent_tools";
import { AgentJobs } from "./jobs";
import { AgentFiles } from "./files";
import { AgentSkills } from "./skills";
import { Budgets } from "./usage";

const TABS = [
  ["overview", "Overview"],
  ["files", "Files"],
  ["tools", "Tools"],
  ["skills", "Skills"],
  ["jobs", "Jobs"],
  ["access", "Access"],
] as const;

export default function AgentsView() {
  const [id = "", tab = "overview", ...rest] = route.value.subject.split("/");
  const agent = agents.value.find((each) => each.id === id);
  if (agent) return <AgentDetail key={agent.id} agent={agent} tab={tab} path={rest.join("/")} />;
  return (
    <View title="Agents" about="Each agent is a folder of Markdown files with a model.">
      {agents.value.length ? (
        <ul class="cards wide-cards" aria-label="Agents">
          {agents.value.map((each) => (
            <AgentCard key={each.id} agent={each} />
          ))}
        </ul>
      ) : (
        <EmptyState icon="bot" title="No agents yet">
          <code>retinue agents add NAME</code> adds one.
        </EmptyState>
      )}
    </View>
  );
}

function lastOf(agent: AgentRow) {
  return sessions.value?.find((row) => row.agent === agent.id);
}

function describe({ creature, vibe }: AgentRow): string {
  return [creature, vibe].filter(Boolean).join(", ");
}

function AgentCard({ agent }: { agent: AgentRow }) {
  const last = lastOf(agent);
  return (
    <li class="card agent-card">
      <a class="agent-link" href={addressOf("agents", agent.id)}>
        <Avatar name={agent.name} emoji={agent.emoji} size={44} />
        <span class="row-text">
          <span class="agent-name">
            <bdi>{agent.name}</bdi> {agent.isDefault && <Badge tone="accent">default</Badge>}
          </span>
          <span class="faint">
            <bdi>{describe(agent) || (agent.name === agent.id ? "no description yet" : agent.id)}</bdi>
          </span>
        </span>
        <Icon name="chevron-right" />
      </a>
      <p class="agent-facts faint">
        <span class="row">
          <Icon name="cpu" size={14} /> {agent.model ?? "no model chosen"}
        </span>
        <span class="row">
          <Icon name="clock" size={14} /> {last ? <Time when={last.updatedAt} /> : "not used yet"}
        </span>
      </p>
      {may("write") && (
        <Button icon="message-square" onClick={() => thread.begin(agent.id)}>
          New conversation
        </Button>
      )}
    </li>
  );
}

function AgentDetail({ agent, tab, path }: { agent: AgentRow; tab: string; path: string }) {
  const known = TABS.some(([id]) => id === tab) ? tab : "overview";
  return (
    <View
      title={agent.name}
      about={describe(agent) || (agent.name === agent.id ? "" : agent.id)}
      wide={known === "files"}
      before={
        <a class="back-link" href={addressOf("agents")}>
          <Icon name="arrow-left" /> Agents
        </a>
      }
      mark={<Avatar name={agent.name} emoji={agent.emoji} size={44} />}
      actions={
        may("write") && (
          <Button icon="message-square" onClick={() => thread.begin(agent.id)}>
            New conversation
          </Button>
        )
      }
    >
      <Tabs label="About this agent" tabs={TABS} current={known} onChange={(id) => go("agents", `${agent.id}/${id}`)} />
      {known === "overview" && <Overview agent={agent} />}
      {known === "files" && (may("admin") ? <AgentFiles agent={agent.id} path={path} show={(file) => go("agents", `${agent.id}/files${file && `/${file}`}`)} /> : <NoRight scope="admin" />)}
      {known === "tools" && <AgentTools agent={agent.id} />}
      {known === "skills" && <AgentSkills agent={agent.id} />}
      {known === "jobs" && <AgentJobs agent={agent.id} />}
      {known === "access" && (may("admin") ? <Access agent={agent.id} /> : <NoRight scope="admin" />)}
    </View>
  );
}

function Overview({ agent }: { agent: AgentRow }) {
  const last = lastOf(agent);
  const jobs = useMethod("cron.list", { agent: agent.id }).data?.jobs;
  const skills = useMethod("skills.list", { agent: agent.id }).data?.skills;
  const notes = useMethod("memory.status", { agent: agent.id }).data;
  const threads = (sessions.value ?? []).filter((row) => row.agent === agent.id);
  const to = (tab: string) => addressOf("agents", `${agent.id}/${tab}`);
  return (
    <>
      <dl class="figures">
        <Figure name="Threads" value={threads.length} href={addressOf("threads")} />
        <Figure name="Skills ready" value={skills?.filter(({ eligible }) => eligible).length} href={to("skills")} />
        <Figure name="Jobs" value={jobs?.length} href={to("jobs")} />
        <Figure name="Notes" value={notes?.files} href={addressOf("memory")} />
      </dl>
      <div class="card">
        <dl class="facts roomy">
          <dt>Model</dt>
          <dd>{agent.model ?? "none chosen"}</dd>
          <dt>Identifier</dt>
          <dd>
            <code>{agent.id}</code> {agent.isDefault && <Badge tone="accent">default agent</Badge>}
          </dd>
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
        </dl>
      </div>
      <Budgets agent={agent.id} />
    </>
  );
}

function Figure({ name, value, href }: { name: string; value: number | undefined; href: string }) {
  return (
    <div class="card">
      <dt class="faint">{name}</dt>
      <dd>
        <a href={href} aria-label={`${name}: ${value ?? "loading"}`}>
          {value ?? "…"}
        </a>
      </dd>
    </div>
  );
}

function Access({ agent }: { agent: string }) {
  const matrix = useMethod("security.matrix", { agent }, ["config.changed"]);
  return (
    <>
      <p class="faint">Who may do what with this agent. A cell opens the rule that decides it.</p>
      <Loaded from={matrix}>{({ rows }) => <CapabilityMatrix label="Who may do what" rows={rows} />}</Loaded>
    </>
  );
}
