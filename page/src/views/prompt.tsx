// The prompt inspector: the exact next request, part by part.
import { useState } from "preact/hooks";
import { thread } from "../chat/thread";
import { openPanel } from "../core/panel";
import { go, route } from "../core/router";
import { useMethod } from "../core/resource";
import { nameOfSession, sessions, sessionName } from "../core/stores";
import { plural, reveal } from "../core/text";
import type { Prompt } from "../generated/wire";
import { Badge, short } from "../parts/bits";
import { CopyButton } from "../parts/code";
import { Select } from "../parts/field";
import { type Column, Table } from "../parts/table";
import { Loaded, View } from "../parts/view";

interface Part {
  id: string;
  name: string;
  kind: string;
  source: string;
  chars: number;
  tokens: number;
  hash: string;
  text: string | null;
  change: string;
}

const KINDS: readonly (readonly [string, string])[] = [
  ["tools", "Tools"],
  ["stable", "Stable"],
  ["session", "Session"],
  ["turn", "Turn"],
  ["history", "History"],
];
const SEEN = "retinue.prompt.";

/** The parts in the order in which they are sent. */
function partsOf({ sections, report }: Prompt, history: number): Part[] {
  const tools = (report.tools ?? []) as { name: string; chars: number; tokens: number; hash: string }[];
  const all: Omit<Part, "change">[] = [
    ...tools.map((tool) => ({ ...tool, id: `tool:${tool.name}`, kind: "tools", source: "tool", text: null })),
    ...sections.map((each) => ({
      id: each.name,
      name: each.name.replace(/^file:/, ""),
      kind: each.part,
      source: each.source,
      chars: each.chars,
      tokens: each.tokens,
      hash: each.hash,
      text: each.text,
    })),
  ];
  if (history > 0) {
    const messages = { id: "history", name: "messages", kind: "history", source: "session", hash: "", text: null };
    all.push({ ...messages, chars: 0, tokens: history });
  }
  return all.map((part) => ({ ...part, change: "" }));
}

/** Mark what differs from the prompt that was shown in this tab before; returns the first cached part that moved. */
function compare(parts: Part[], session: string): { parts: Part[]; moved: Part | null } {
  const key = SEEN + session;
  const before: Record<string, string> | null = JSON.parse(sessionStorage.getItem(key) ?? "null");
  const present = Object.fromEntries(parts.map(({ id, hash }) => [id, hash]));
  sessionStorage.setItem(key, JSON.stringify(present));
  if (!before) return { parts, moved: null };
  const marked = parts.map((part) => ({
    ...part,
    change: !part.hash || before[part.id] === part.hash ? "" : part.id in before ? "changed" : "new",
  }));
  return { parts: marked, moved: marked.find(({ change, kind }) => change && kind !== "turn") ?? null };
}

export default function PromptView() {
  const session = route.value.subject || thread.key.value || "";
  const prompt = useMethod("prompt.show", { sessionKey: session || null }, ["config.changed"]);
  const introduction = useMethod("sessions.introduce", { sessionKey: session || null });
  const rows = sessions.value ?? [];
  const options = rows.slice(0, 100).map((row) => [row.key, sessionName(row)] as const);
  const known = rows.some(({ key }) => key === session) ? options : [[session, nameOfSession(session)] as const, ...options];
  return (
    <View
      title="Prompt inspector"
      about="Exactly what the model reads before the next message."
      actions={
        <Select label="Thread" hideLabel value={session} options={known} onChange={(key) => go("prompt", key)} />
      }
    >
      <Loaded from={prompt}>
        {(data) => <Inspector key={session} prompt={data} session={session} facts={introduction.data} />}
      </Loaded>
    </View>
  );
}

interface InspectorProps {
  prompt: Prompt;
  session: string;
  facts: { window: number; used: number } | null;
}

function Inspector({ prompt, session, facts }: InspectorProps) {
  const base = partsOf(prompt, 0).reduce((sum, { tokens }) => sum + tokens, 0);
  const history = Math.max(0, (facts?.used ?? 0) - base);
  const [compared] = useState(() => compare(partsOf(prompt, 0), session));
  const changes = new Map(compared.parts.map(({ id, change }) => [id, change]));
  const parts = partsOf(prompt, history).map((part) => ({ ...part, change: changes.get(part.id) ?? "" }));
  const total = base + history;
  const boundary = parts.findLast(({ kind }) => kind === "tools" || kind === "stable");
  const sums = KINDS.map(([kind, title]) => {
    const own = parts.filter((part) => part.kind === kind);
    return { kind, title, tokens: own.reduce((sum, { tokens }) => sum + tokens, 0) };
  }).filter(({ tokens }) => tokens > 0);
  const columns: Column<Part>[] = [
    {
      title: "Part",
      cell: (part) => (
        <>
          <button type="button" class="link" onClick={() => showPart(part)}>
            <bdi>{part.name}</bdi>
          </button>{" "}
          {part.change && <Badge tone="warn">{part.change}</Badge>}{" "}
          {part === boundary && <Badge tone="accent">cache ends here</Badge>}
        </>
      ),
      by: ({ name }) => name,
    },
    { title: "Kind", cell: ({ kind }) => kind, by: ({ kind }) => kind },
    { title: "Source", cell: ({ source }) => <bdi>{source}</bdi>, by: ({ source }) => source },
    { title: "Characters", cell: ({ chars }) => chars.toLocaleString(), by: ({ chars }) => chars, isNumber: true },
    { title: "Tokens", cell: ({ tokens }) => tokens.toLocaleString(), by: ({ tokens }) => tokens, isNumber: true },
    { title: "Share", cell: ({ tokens }) => `${((100 * tokens) / total).toFixed(1)} %`, isNumber: true },
  ];
  return (
    <>
      <div class="card stack">
        <p>
          <b>{plural(total, "token")}</b>
          {facts?.window ? ` of ${short(facts.window)}, ${((100 * total) / facts.window).toFixed(1)} %` : ""}
        </p>
        <div class="stack-bar" aria-hidden="true">
          {sums.map(({ kind, tokens }) => (
            <span key={kind} class={`stack-${kind}`} style={{ flexGrow: tokens }} />
          ))}
        </div>
        <ul class="legend">
          {sums.map(({ kind, title, tokens }) => (
            <li key={kind}>
              <span class={`plot-key stack-${kind}`} /> {title} <span class="faint">{tokens.toLocaleString()}</span>
            </li>
          ))}
        </ul>
        <p class="faint">
          {compared.moved
            ? `The cache moved: “${compared.moved.name}” is ${compared.moved.change} since it was shown last, so everything after it is read anew.`
            : "Tools and stable parts are the same for every turn, so providers read them from their cache."}
        </p>
      </div>
      <Table label="Parts of the prompt" columns={columns} rows={parts} keyOf={({ id }) => id} />
    </>
  );
}

function showPart(part: Part): void {
  openPanel(part.name, () => (
    <div class="stack">
      <p class="faint">
        {part.kind} · {part.source} · {plural(part.chars, "character")} · {plural(part.tokens, "token")}
      </p>
      {part.text === null ? (
        <p>{part.kind === "tools" ? "The schema of this tool is sent as data of the request." : "The conversation."}</p>
      ) : (
        <>
          <CopyButton text={part.text} label="Copy this part" />
          <pre tabindex={0} role="group" aria-label="Text" class="wrapped">
            {reveal(part.text)}
          </pre>
        </>
      )}
    </div>
  ));
}
