// The rail: the agent, the threads, and the way to every view.
import { useEffect, useRef } from "preact/hooks";
import { thread } from "../chat/thread";
import { knows, may, signOut } from "../core/gateway";
import { moveInList, showsHelp, showsPalette } from "../core/keyboard";
import { allowNotifications } from "../core/notifications";
import { notifies, railIsOpen, theme } from "../core/preferences";
import { addressOf, go, route } from "../core/router";
import { agentOf, agents, approvals, childrenOf, devices, isUnread, placeOf, sessions, sessionName } from "../core/stores";
import { isPinned, threadMenu } from "../core/thread_actions";
import { briefTime, now } from "../core/time";
import type { SessionRow } from "../generated/wire";
import type { IconName } from "../generated/icons";
import { Avatar } from "../parts/bits";
import { Button, IconButton } from "../parts/button";
import { Icon } from "../parts/icon";
import { Menu } from "../parts/menu";
import { Skeleton } from "../parts/states";
import { GROUPS, VIEWS } from "../views/registry";
import { closeDrawer, drawerIsOpen } from "./drawer";

const DAY = 86_400_000;

export function Rail() {
  const root = useRef<HTMLElement>(null);
  const { name, emoji } = thread.identity.value;
  useEffect(() => {
    if (!drawerIsOpen.value) return;
    const current = root.current?.querySelector<HTMLElement>("[aria-current]");
    (current ?? root.current?.querySelector<HTMLElement>("button"))?.focus();
  }, [drawerIsOpen.value]);
  if (!railIsOpen.value && !drawerIsOpen.value) {
    return (
      <nav id="side" class="rail narrow" aria-label="Conversations">
        <IconButton icon="panel-left" label="Show the rail" onClick={() => (railIsOpen.value = true)} />
        <IconButton icon="search" label="Search and commands" onClick={() => (showsPalette.value = true)} />
        <IconButton icon="plus" label="New conversation" onClick={() => thread.begin()} />
      </nav>
    );
  }
  return (
    <nav id="side" class="rail" aria-label="Conversations" ref={root}>
      <div class="rail-head">
        <AgentMenu name={name} emoji={emoji} />
        <IconButton icon="panel-left" label="Hide the rail" class="rail-hide" onClick={() => (railIsOpen.value = false)} />
        <IconButton icon="x" label="Close the menu" class="drawer-close" onClick={closeDrawer} />
      </div>
      <div class="rail-actions">
        {may("write") && (
          <Button icon="plus" class="new-thread" onClick={() => begin()}>
            New conversation
          </Button>
        )}
        <IconButton icon="search" label="Search and commands" onClick={() => (showsPalette.value = true)} />
      </div>
      <ThreadList />
      <ViewList />
    </nav>
  );
}

function begin(agent?: string): void {
  drawerIsOpen.value = false;
  thread.begin(agent);
}

function AgentMenu({ name, emoji }: { name: string; emoji: string }) {
  const items = () => [
    ...(agents.value.length > 1 && may("write")
      ? agents.value.map((agent) => ({
          icon: "bot" as const,
          text: `New conversation with ${`${agent.emoji} ${agent.name}`.trim()}`,
          act: () => begin(agent.id),
        }))
      : []),
    { icon: "sun" as const, text: "Light theme", isChosen: theme.value === "light", act: () => (theme.value = "light") },
    { icon: "moon" as const, text: "Dark theme", isChosen: theme.value === "dark", act: () => (theme.value = "dark") },
    {
      icon: "monitor" as const,
      text: "Theme of the system",
      isChosen: theme.value === "system",
      act: () => (theme.value = "system"),
    },
    {
      icon: "bell" as const,
      text: notifies.value ? "Stop notifying me" : "Notify me in this browser",
      act: () => {
        if (notifies.value) notifies.value = false;
        else void allowNotifications();
      },
    },
    { icon: "info" as const, text: "Keys", act: () => (showsHelp.value = true) },
    { icon: "log-out" as const, text: "Sign out", act: () => signOut() },
  ];
  return (
    <Menu label={`${name}: settings of this page`} class="agent-button" side="left" items={items}>
      <Avatar name={name} emoji={emoji} />
      <span id="name">{name}</span>
      <Icon name="chevron-down" size={14} />
    </Menu>
  );
}

interface Section {
  title: string;
  rows: SessionRow[];
}

const BACKGROUND = new Set(["cron", "heartbeat", "subagent"]);

/** Threads of people by age; runs of the background are in the view of all threads. */
function sections(rows: SessionRow[]): Section[] {
  const today = new Date(now.value).setHours(0, 0, 0, 0);
  const age = (row: SessionRow) => new Date(row.updatedAt).getTime();
  const known = new Set(rows.map(({ key }) => key));
  const isBelow = (row: SessionRow) => row.spawnedBy !== null && known.has(row.spawnedBy);
  const usual = rows.filter(
    (row) => !isBelow(row) && (!BACKGROUND.has(placeOf(row.key).kind) || row.key === thread.key.value),
  );
  const rest = usual.filter((row) => !isPinned(row.key));
  const found: Section[] = [
    { title: "Pinned", rows: usual.filter((row) => isPinned(row.key)) },
    { title: "Today", rows: rest.filter((row) => age(row) >= today) },
    { title: "This week", rows: rest.filter((row) => age(row) < today && age(row) >= today - 7 * DAY) },
    { title: "Earlier", rows: rest.filter((row) => age(row) < today - 7 * DAY) },
  ];
  return found.filter((section) => section.rows.length);
}

function ThreadList() {
  const rows = sessions.value;
  if (!rows) return <Skeleton lines={5} />;
  const key = thread.key.value;
  const isNew = key !== null && !rows.some((row) => row.key === key);
  return (
    <div id="sessions" onKeyDown={moveInList}>
      {isNew && (
        <ul>
          <li class="thread-item">
            <ThreadLink row={{ key, updatedAt: "", running: false, label: null }} />
          </li>
        </ul>
      )}
      {sections(rows).map(({ title, rows: found }) => (
        <section key={title} aria-label={title}>
          <h2 class="rail-title">{title}</h2>
          <ul>
            {found.map((row) => (
              <ThreadItem key={row.key} row={row} />
            ))}
          </ul>
        </section>
      ))}
    </div>
  );
}

/** A thread, and below it the sub-agents that work for it now, or all of them while it is open. */
function ThreadItem({ row }: { row: SessionRow }) {
  const isOpen = row.key === thread.key.value;
  const children = childrenOf(row.key).filter((child) => isOpen || child.running);
  return (
    <li class="thread-family">
      <div class="thread-item">
        <ThreadLink row={row} />
        <Menu label={`Actions of ${sessionName(row)}`} class="icon-button small" items={() => threadMenu(row)}>
          <Icon name="ellipsis" />
        </Menu>
      </div>
      {children.length > 0 && (
        <ul class="thread-children" aria-label={`Sub-agents of ${sessionName(row)}`}>
          {children.slice(0, MAX_CHILDREN).map((child) => (
            <ThreadItem key={child.key} row={child} />
          ))}
        </ul>
      )}
    </li>
  );
}

const MAX_CHILDREN = 8;

const GLYPHS: Record<string, IconName> = {
  main: "message-square",
  chat: "message-square",
  cron: "clock",
  heartbeat: "heart-pulse",
  subagent: "git-fork",
  webhook: "webhook",
  channel: "smartphone",
  other: "terminal",
};

type Linked = Pick<SessionRow, "key" | "updatedAt" | "running" | "label">;

export function ThreadLink({ row }: { row: Linked }) {
  const isCurrent = row.key === thread.key.value && route.value.view === "chat";
  const isRunning = row.key === thread.key.value ? thread.isRunning.value : row.running;
  const place = placeOf(row.key);
  const agent = agents.value.length > 1 && place.kind !== "subagent" ? agentOf(place.agent) : undefined;
  const moment = isRunning ? "answering" : row.updatedAt ? briefTime(row.updatedAt) : "new";
  return (
    <button
      type="button"
      class="thread-link"
      data-entry
      data-key={row.key}
      aria-current={isCurrent ? "true" : undefined}
      onClick={() => {
        drawerIsOpen.value = false;
        go("chat", row.key);
      }}
    >
      {agent ? (
        <Avatar name={agent.name} emoji={agent.emoji} size={18} label={agent.name} />
      ) : (
        <Icon name={GLYPHS[place.kind] ?? "message-square"} />
      )}
      <bdi class="session-name">{sessionName(row)}</bdi>
      <span class="session-facts faint">{moment}</span>
      {isRunning && <span class="running-dot" aria-hidden="true" />}
      {isUnread(row) && !isCurrent && (
        <span class="unread-dot" title="Not read yet">
          <span class="unseen">not read yet</span>
        </span>
      )}
    </button>
  );
}

function ViewList() {
  const counts: Record<string, number> = {
    approvals: approvals.value.length,
    devices: devices.value.waiting.length,
  };
  return (
    <div class="view-list">
      {GROUPS.map(([group, title]) => {
        const shown = VIEWS.filter((view) => view.group === group && (!view.needs || knows(view.needs)));
        if (!shown.length) return null;
        return (
          <details
            key={group}
            class="view-group"
            open={group !== "system" || shown.some(({ id }) => id === route.value.view)}
          >
            <summary class="rail-title">{title}</summary>
            <ul>
              {shown.map(({ id, title: text, brief, icon }) => (
                <li key={id}>
                  <a
                    class="view-link"
                    href={addressOf(id)}
                    aria-current={route.value.view === id ? "page" : undefined}
                    onClick={() => (drawerIsOpen.value = false)}
                  >
                    <Icon name={icon} />
                    <span title={brief ? text : undefined}>{brief ?? text}</span>
                    {Boolean(counts[id]) && <span class="count">{counts[id]}</span>}
                  </a>
                </li>
              ))}
            </ul>
          </details>
        );
      })}
    </div>
  );
}
