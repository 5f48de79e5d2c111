// All threads: search in their messages, grouped, with runs of the background folded under what started them.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { knows } from "../core/gateway";
import { moveInList } from "../core/keyboard";
import { useMethod } from "../core/resource";
import { go, tabOf } from "../core/router";
import { agentOf, agents, isUnread, nameOfSession, placeOf, sessions, sessionName } from "../core/stores";
import { plural } from "../core/text";
import { exactTime } from "../core/time";
import { isPinned, threadMenu } from "../core/thread_actions";
import type { SessionRow } from "../generated/wire";
import { Avatar, Badge, short, Tabs, Time } from "../parts/bits";
import { SearchField, Select } from "../parts/field";
import { Icon } from "../parts/icon";
import { marked } from "../parts/marked";
import { Menu } from "../parts/menu";
import { EmptyState, Skeleton } from "../parts/states";
import { Loaded, View } from "../parts/view";

const SHOWN = [
  ["open", "Open"],
  ["archived", "Archived"],
] as const;
const PAUSE_MS = 300;
const MAX_DEPTH = 6;
const FIRST = 100;
const GROUPS = [
  ["kind", "By kind"],
  ["agent", "By agent"],
  ["channel", "By channel"],
  ["none", "Not grouped"],
] as const;
const KIND_NAMES: Record<string, string> = {
  main: "Conversations",
  chat: "Conversations",
  other: "Conversations",
  channel: "Chat services",
  cron: "Jobs",
  subagent: "Sub-agents",
  heartbeat: "Heartbeats",
  webhook: "Webhooks",
};

export default function ThreadsView() {
  const [typed, setTyped] = useState("");
  const [query, setQuery] = useState("");
  const [grouping, setGrouping] = useState("kind");
  const [agent, setAgent] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setQuery(typed.trim()), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  const [shown, setShown] = tabOf("threads", SHOWN);
  const archived = useMethod("sessions.list", shown === "archived" ? { archived: true } : null, ["sessions.changed"]);
  const all = shown === "archived" ? (archived.data?.sessions ?? null) : sessions.value;
  const rows = (all ?? []).filter((row) => !agent || row.agent === agent);
  const byName = rows.filter((row) => sessionName(row).toLowerCase().includes(typed.trim().toLowerCase()));
  const everyone = [["", "All agents"], ...agents.value.map(({ id, name }) => [id, name])] as [string, string][];
  return (
    <View
      title="Threads"
      about="Every conversation, also those of jobs, heartbeats and sub-agents."
      actions={
        <>
          {agents.value.length > 1 && <Select label="Agent" hideLabel value={agent} options={everyone} onChange={setAgent} />}
          <Select label="Grouping" hideLabel value={grouping} options={GROUPS} onChange={setGrouping} />
        </>
      }
    >
      <Tabs label="Which threads" tabs={SHOWN} current={shown} onChange={setShown} />
      <SearchField label="Search names and messages" value={typed} onInput={setTyped} />
      {!all && <Skeleton />}
      {all && !byName.length && !query && (
        <EmptyState icon={shown === "archived" ? "archive" : "messages-square"} title={shown === "archived" ? "Nothing is archived" : "No threads yet"}>
          {shown === "archived"
            ? "Archive a thread to take it out of the lists. It stays searchable, and a new message brings it back."
            : "Each conversation appears here, also those that come from chat services and jobs."}
        </EmptyState>
      )}
      <Groups rows={byName} grouping={grouping} />
      {query && knows("sessions.search") && <Found query={query} agent={agent || null} />}
    </View>
  );
}

function Found({ query, agent }: { query: string; agent: string | null }) {
  const found = useMethod("sessions.search", { query, agent });
  return (
    <section class="stack" aria-label="Found in messages">
      <h2>In messages</h2>
      <Loaded from={found}>
        {({ hits, complete }) => (
          <>
            {!hits.length && <p class="faint">No message has these words.</p>}
            <ul class="rows" onKeyDown={moveInList}>
              {hits.map((hit) => (
                <li key={`${hit.sessionKey} ${hit.entry}`}>
                  <div class="row-text">
                    <button type="button" class="link" data-entry onClick={() => go("chat", hit.sessionKey)}>
                      <bdi>{nameOfSession(hit.sessionKey)}</bdi>
                    </button>
                    <p class="snippet">{marked(hit.snippet, query)}</p>
                  </div>
                  <Badge>{hit.role === "user" ? "you" : "agent"}</Badge>
                  <Time when={hit.at} />
                </li>
              ))}
            </ul>
            {!complete && <p class="faint">There may be more. More words narrow the search.</p>}
          </>
        )}
      </Loaded>
    </section>
  );
}

function groupOf(row: SessionRow, grouping: string): string {
  const place = placeOf(row.key);
  if (grouping === "agent") return agentOf(row.agent)?.name ?? row.agent;
  if (grouping === "channel") return place.channel || "This gateway";
  return grouping === "kind" ? (KIND_NAMES[place.kind] ?? "Others") : "";
}

/** The thread for which a sub-agent works in the end. */
function rootOf(row: SessionRow, rows: SessionRow[]): SessionRow {
  let found = row;
  for (let step = 0; step < MAX_DEPTH && found.spawnedBy; step += 1) {
    found = rows.find(({ key }) => key === found.spawnedBy) ?? found;
  }
  return found;
}

function Groups({ rows, grouping }: { rows: SessionRow[]; grouping: string }) {
  const groups = new Map<string, SessionRow[]>();
  for (const row of rows) {
    const group = isPinned(row.key) ? "Pinned" : groupOf(rootOf(row, rows), grouping);
    groups.set(group, [...(groups.get(group) ?? []), row]);
  }
  const ordered = [...groups].sort(([a], [b]) => Number(b === "Pinned") - Number(a === "Pinned"));
  return (
    <>
      {ordered.map(([title, own]) => (
        <section key={title} class="stack" aria-label={title || "Threads"}>
          {title && (
            <h2>
              {title} <span class="faint">{own.length}</span>
            </h2>
          )}
          <Rows rows={own} />
        </section>
      ))}
    </>
  );
}

/** Rows of one job are one row with a count that opens; other rows stand for themselves. */
function Rows({ rows }: { rows: SessionRow[] }) {
  const [most, setMost] = useState(FIRST);
  const families = new Map<string, SessionRow[]>();
  const known = new Set(rows.map(({ key }) => key));
  for (const row of rows) {
    if (row.spawnedBy && known.has(row.spawnedBy)) continue; // it is below its parent
    const place = placeOf(row.key);
    const family = place.kind === "cron" ? `cron ${row.agent} ${place.detail}` : row.key;
    families.set(family, [...(families.get(family) ?? []), row]);
  }
  const shown = [...families].slice(0, most);
  return (
    <>
      <ul class="rows" onKeyDown={moveInList}>
        {shown.map(([family, own]) =>
          own.length === 1 ? (
            <Tree key={family} row={own[0]!} rows={rows} />
          ) : (
            <Family key={family} rows={own} />
          ),
        )}
      </ul>
      {families.size > most && (
        <button type="button" class="button quiet" onClick={() => setMost(most * 4)}>
          Show more of {plural(families.size, "thread")}
        </button>
      )}
    </>
  );
}

/** A thread, and below it the sub-agents that worked for it, at any depth. */
function Tree({ row, rows, depth = 0 }: { row: SessionRow; rows: SessionRow[]; depth?: number }): ComponentChildren {
  const children = depth < MAX_DEPTH ? rows.filter(({ spawnedBy }) => spawnedBy === row.key) : [];
  return (
    <>
      <li class={depth ? "sub-row" : ""} style={depth ? { "--depth": String(depth) } : undefined}>
        <Row row={row} />
      </li>
      {children.map((child) => (
        <Tree key={child.key} row={child} rows={rows} depth={depth + 1} />
      ))}
    </>
  );
}

function Family({ rows }: { rows: SessionRow[] }) {
  const [isOpen, setOpen] = useState(false);
  const first = rows[0]!;
  return (
    <li class="family">
      <details class="family-fold" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <span class="row-icon">
            <Icon name="calendar-clock" size={18} />
          </span>
          <span class="row-text">
            <b>
              <bdi>{sessionName(first)}</bdi>
            </b>{" "}
            <Badge>{plural(rows.length, "run")}</Badge>
            <span class="faint family-about">{agentOf(first.agent)?.name ?? first.agent} · a job</span>
          </span>
          <Time when={first.updatedAt} />
          <Icon name="chevron-down" />
        </summary>
        {isOpen && (
          <ul class="plain-list">
            {rows.map((row) => (
              <li key={row.key} class="run-row">
                <button type="button" class="link" data-entry onClick={() => go("chat", row.key)}>
                  {exactTime(row.startedAt)}
                </button>
                <span class="faint">{plural(row.messages, "message")}</span>
                <Menu label={`Actions of the run of ${exactTime(row.startedAt)}`} items={() => threadMenu(row)}>
                  <Icon name="ellipsis" />
                </Menu>
              </li>
            ))}
          </ul>
        )}
      </details>
    </li>
  );
}

function Row({ row }: { row: SessionRow }): ComponentChildren {
  const agent = agentOf(row.agent);
  return (
    <>
      <span class="row-icon">
        {row.spawnedBy ? <Icon name="git-fork" size={18} /> : <Avatar name={agent?.name ?? row.agent} emoji={agent?.emoji} size={30} />}
      </span>
      <div class="row-text">
        <button type="button" class="link" data-entry onClick={() => go("chat", row.key)}>
          <bdi>{sessionName(row)}</bdi>
        </button>{" "}
        {isUnread(row) && (
          <span class="unread-dot" title="Not read yet">
            <span class="unseen">not read yet</span>
          </span>
        )}{" "}
        {row.running && <Badge tone="accent">answering</Badge>} {row.forkedFrom && <Badge>branch</Badge>}
        <p class="faint">
          {agent?.name ?? row.agent} · {plural(row.messages, "message")}
          <span class="wide-only">
            {" "}
            · {short(row.contextTokens)} tokens
            {row.compactions > 0 && ` · summarised ${row.compactions} times`}
          </span>
        </p>
      </div>
      <Time when={row.updatedAt} />
      <Menu label={`Actions of ${sessionName(row)}`} items={() => threadMenu(row)}>
        <Icon name="ellipsis" />
      </Menu>
    </>
  );
}
