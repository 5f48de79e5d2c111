// What several views show: agents, sessions, approval requests and devices, kept fresh by events.
import { computed, signal } from "@preact/signals";
import type { AgentRow, Devices, Pending, SessionRow } from "../generated/wire";
import { attempting, call, hello, listen, may, onGreeting, onSignOut } from "./gateway";
import { notify } from "./notifications";
import { seen, seenSince } from "./preferences";
import { capitalize, shorten } from "./text";

const SETTLE = 150;
const MAX_SESSIONS = 200;

export const agents = signal<AgentRow[]>([]);
/** The newest sessions; null until they are known. */
export const sessions = signal<SessionRow[] | null>(null);
export const moreSessions = signal<string | null>(null);
export const approvals = signal<Pending[]>([]);
export const devices = signal<Devices>({ waiting: [], paired: [] });
/** What a screen reader reads out. */
export const announcement = signal("");

export const defaultAgent = computed(() => agents.value.find((each) => each.isDefault)?.id ?? "main");

export function agentOf(id: string): AgentRow | undefined {
  return agents.value.find((each) => each.id === id);
}

export async function loadAgents(): Promise<void> {
  agents.value = (await call("agents.list")).agents;
}

const afterSessions = new Set<() => Promise<void>>();

/** Run a function whenever the list of sessions was read. */
export function afterSessionsLoad(act: () => Promise<void>): void {
  afterSessions.add(act);
}

export async function loadSessions(): Promise<void> {
  const found = await call("sessions.list", { limit: MAX_SESSIONS });
  seenSince.value ||= new Date().toISOString();
  sessions.value = found.sessions;
  moreSessions.value = found.nextCursor;
  for (const act of afterSessions) await act();
}

let listTimer = 0;
export function loadSessionsSoon(): void {
  listTimer ||= window.setTimeout(() => {
    listTimer = 0;
    attempting(loadSessions);
  }, SETTLE);
}

let asked = 0;
export async function loadApprovals(): Promise<void> {
  if (!may("approve")) return;
  const number = ++asked;
  const found = (await call("approvals.list")).approvals;
  if (number !== asked) return; // a later list was requested
  const known = new Set(approvals.value.map(({ request }) => request.id));
  approvals.value = found;
  for (const { request } of found.filter(({ request }) => !known.has(request.id))) {
    announcement.value = `Approval requested: ${request.title}`;
    notify("Approval requested", shorten(request.title, 120));
  }
}

export async function loadDevices(): Promise<void> {
  if (!may("pair")) return;
  const known = new Set(devices.value.waiting.map(({ id }) => id));
  devices.value = await call("devices.list");
  for (const { id, code } of devices.value.waiting) {
    if (!known.has(id)) announcement.value = `A device requests access: ${code}`;
  }
}

listen(({ stream, event }) => {
  if (stream !== "gateway") return;
  if (event === "sessions.changed") loadSessionsSoon();
  if (event === "approvals.changed") attempting(loadApprovals);
  if (event === "devices.changed") attempting(loadDevices);
  if (event === "config.changed") attempting(loadAgents);
});
onGreeting(loadAgents);
onSignOut(() => {
  sessions.value = null;
  approvals.value = [];
  devices.value = { waiting: [], paired: [] };
});

const MAX_SEEN = 300;

/** Whether a thread has something that was not looked at in this browser; background work never counts. */
export function isUnread(row: Pick<SessionRow, "key" | "updatedAt" | "running">): boolean {
  if (row.running || !row.updatedAt || QUIET.has(placeOf(row.key).kind)) return false;
  const known = seen.value[row.key] ?? seenSince.value;
  return known !== "" && new Date(row.updatedAt) > new Date(known);
}

/** Remember that a thread was looked at. */
export function markSeen(key: string): void {
  const when = sessions.value?.find((row) => row.key === key)?.updatedAt;
  if (!when || seen.value[key] === when) return;
  const entries = Object.entries({ ...seen.value, [key]: when }).sort(([, a], [, b]) => (a < b ? 1 : -1));
  seen.value = Object.fromEntries(entries.slice(0, MAX_SEEN));
}

const QUIET = new Set(["cron", "heartbeat", "subagent"]);

/** The sub-agents of a thread, the newest first. */
export function childrenOf(key: string): SessionRow[] {
  return (sessions.value ?? []).filter((row) => row.spawnedBy === key);
}

/** Prefix of the conversations that this page created; their first words become their labels. */
export const OWN_PREFIX = "chat-";

/** What a session is, read from its key. */
export interface SessionPlace {
  agent: string;
  kind: "main" | "chat" | "cron" | "subagent" | "heartbeat" | "webhook" | "channel" | "other";
  /** The part of the key that tells sessions of one kind apart. */
  detail: string;
  channel: string;
}

export function placeOf(key: string): SessionPlace {
  const [first = "", agent = "", ...rest] = key.split(":");
  const parts = first === "agent" ? rest : [first, agent, ...rest];
  const owner = first === "agent" ? agent : "";
  const [head = "", ...tail] = parts;
  const detail = tail.join(":");
  if (head === "main" && !detail) return { agent: owner, kind: "main", detail: "", channel: "" };
  if (head.startsWith(OWN_PREFIX)) return { agent: owner, kind: "chat", detail: head, channel: "" };
  if (head === "cron") return { agent: owner, kind: "cron", detail: tail[0] ?? "", channel: "" };
  if (head === "subagent" || parts.includes("subagent")) return { agent: owner, kind: "subagent", detail, channel: "" };
  if (head === "heartbeat") return { agent: owner, kind: "heartbeat", detail, channel: "" };
  if (head === "hook" || head === "webhook") return { agent: owner, kind: "webhook", detail, channel: "" };
  if (detail) return { agent: owner, kind: "channel", detail, channel: head };
  return { agent: owner, kind: "other", detail: head, channel: "" };
}

/** The name of a session: its label, else what it is about, else what its key says. */
export function sessionName(row: { key: string; label?: string | null; title?: string }): string {
  if (row.label || row.title) return shorten(row.label || row.title, 80);
  const place = placeOf(row.key);
  switch (place.kind) {
    case "main":
      return "Main conversation";
    case "chat":
      return "New conversation";
    case "cron":
      return "Scheduled run";
    case "subagent":
      return "Sub-agent";
    case "heartbeat":
      return "Heartbeat";
    case "webhook":
      return shorten(`Webhook ${place.detail}`, 80);
    case "channel":
      return shorten(`${capitalize(place.channel)} ${place.detail.replace(/^(direct|group|channel|dm):/, "")}`, 80);
    default:
      return shorten(place.detail, 80);
  }
}

export function nameOfSession(key: string): string {
  const row = sessions.value?.find((each) => each.key === key);
  return sessionName(row ?? { key });
}

export const ownToken = computed(() => hello.value?.tokenId ?? "");
