// The prompt inspector: the exact next request, part by part.
import { useState } from "preact/hooks";
import { thread } from "../chat/thread";
import { openPanel } from "../core/panel";
import { go, route } from "../core/router";
import { useMethod } from "../core/resource";
import { nameOfSession, sessions, sessionName } from "../core/stores";
import { humanize, plural, reveal } from "../core/text";
import type { Prompt, PromptChanges } from "../generated/wire";
import { Badge, short } from "../parts/bits";
import { Button } from "../parts/button";
import { CopyButton } from "../parts/code";
import { Select } from "../parts/field";
import { Icon } from "../parts/icon";
import { Loaded, View } from "../parts/view";

interface Part {
  id: string;
  name: string;
  kind: string;
  source: string;
  chars: number;
  tokens: number;
  text: string | null;
  change: string;
  /** Parts of this part, such as the skills of the catalogue. */
  parts: Part[];
}

interface Group {
  kind: string;
  title: string;
  about: string;
  parts: Part[];
  tokens: number;
  chars: number;
}

const KINDS: readonly (readonly [kind: string, title: string, about: string])[] = [
  ["tools", "Tools", "what the model can call"],
  ["stable", "Stable", "the same in every conversation"],
  ["session", "Session", "the same in this conversation"],
  ["turn", "Turn", "different each time"],
  ["history", "History", "what was said"],
];
/** What follows these kinds is not the same in every request, so providers read it anew. */
const CACHED = new Set(["tools", "stable"]);

interface Size {
  name: string;
  chars: number;
  tokens: number;
}

function changeOf(name: string, since: PromptChanges | null): string {
  if (since?.added.includes(name)) return "new";
  return since?.changed.includes(name) || since?.moved === name ? "changed" : "";
}

/** The parts in the order in which they are sent. */
function groupsOf({ sections, report, since }: Prompt, used: number): Group[] {
  const sizes = (name: string) => (report[name] ?? []) as Size[];
  const tools = sizes("tools").map(
    (tool): Part => ({
      ...tool,
      id: `tool:${tool.name}`,
      kind: "tools",
      source: "",
      text: null,
      change: changeOf(`tool:${tool.name}`, since),
      parts: [],
    }),
  );
  const texts = sections.map(
    ({ name, part, source, chars, tokens, text }): Part => ({
      id: name,
      name: name.startsWith("file:") ? name.slice(5) : humanize(name),
      kind: part,
      source,
      chars,
      tokens,
      text,
      change: changeOf(name, since),
      parts: name === "skills" ? sizes("skills").map((skill) => skillPart(skill, part, text)) : [],
    }),
  );
  const all = [...tools, ...texts];
  const history = used - all.reduce((sum, { tokens }) => sum + tokens, 0);
  if (history > 0) {
    const none = { kind: "history", source: "", chars: 0, text: null, change: "", parts: [] };
    all.push({ ...none, id: "history", name: "Messages", tokens: history });
  }
  return KINDS.map(([kind, title, about]) => {
    const parts = all.filter((part) => part.kind === kind);
    const sum = (pick: (part: Part) => number) => parts.reduce((total, part) => total + pick(part), 0);
    return { kind, title, about, parts, tokens: sum(({ tokens }) => tokens), chars: sum(({ chars }) => chars) };
  }).filter(({ parts }) => parts.length);
}

/** One skill of the catalogue with its entry: an element of its own, or a line of the bundled ones. */
function skillPart({ name, chars, tokens }: Size, kind: string, catalogue: string): Part {
  const named = catalogue.indexOf(`<name>${name}</name>`);
  const start = named < 0 ? catalogue.indexOf(`\n${name}: `) + 1 : catalogue.lastIndexOf("<skill>", named);
  const text = start > 0 ? catalogue.slice(start, start + chars) : null;
  return { id: `skill:${name}`, name, kind, source: "skill", chars, tokens, text, change: "", parts: [] };
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
        {(data) => <Inspector key={session} prompt={data} window={introduction.data?.window ?? 0} used={introduction.data?.used ?? 0} />}
      </Loaded>
    </View>
  );
}

function Inspector({ prompt, window, used }: { prompt: Prompt; window: number; used: number }) {
  const groups = groupsOf(prompt, used);
  const total = groups.reduce((sum, { tokens }) => sum + tokens, 0);
  return (
    <>
      <div class="card stack">
        <p class="row between wrap">
          <b>{plural(total, "token")}</b>
          {window > 0 && (
            <span class="faint">
              {((100 * total) / window).toFixed(1)} % of {short(window)}
            </span>
          )}
        </p>
        <div class="stack-bar" aria-hidden="true">
          {groups.map(({ kind, tokens }) => (
            <span key={kind} class={`stack-${kind}`} style={{ flexGrow: tokens }} />
          ))}
        </div>
        <ul class="legend">
          {groups.map(({ kind, title, tokens }) => (
            <li key={kind}>
              <span class={`plot-key stack-${kind}`} /> {title} <span class="faint">{tokens.toLocaleString()}</span>
            </li>
          ))}
        </ul>
        <CacheLine since={prompt.since} />
      </div>
      <PartTable groups={groups} total={total} />
    </>
  );
}

/** Whether a provider can still use its cache, and what moved it. */
function CacheLine({ since }: { since: PromptChanges | null }) {
  const name = (since?.moved ?? "").replace(/^(file|tool):/, "");
  if (!since) return <p class="faint">No turn was recorded yet, so there is nothing to compare with.</p>;
  if (!since.moved) {
    return (
      <p class="row cache-note">
        <Icon name="check" size={16} /> Nothing moved the cache since the last turn.
      </p>
    );
  }
  return (
    <p class="row cache-note moved">
      <Icon name="zap" size={16} />
      <span>
        The cache moved: “{name}” is not as it was, {since.because}. Everything after it is read anew.
      </span>
    </p>
  );
}

function PartTable({ groups, total }: { groups: Group[]; total: number }) {
  const changed = (group: Group) => group.parts.some(({ change }) => change);
  const [open, setOpen] = useState<ReadonlySet<string>>(
    () => new Set(groups.filter((group) => group.kind !== "tools" || changed(group)).map(({ kind }) => kind)),
  );
  const toggle = (id: string) => {
    const next = new Set(open);
    if (!next.delete(id)) next.add(id);
    setOpen(next);
  };
  const boundary = groups.findLast(({ kind }) => CACHED.has(kind));
  return (
    <div class="table-frame">
      <table class="table tree" aria-label="Parts of the prompt">
        <thead>
          <tr>
            <th scope="col">Part</th>
            <th scope="col">Source</th>
            <th scope="col" class="number">
              Characters
            </th>
            <th scope="col" class="number">
              Tokens
            </th>
            <th scope="col" class="number">
              Share
            </th>
          </tr>
        </thead>
        {groups.map((group) => (
          <tbody key={group.kind}>
            <tr class="tree-group">
              <th scope="rowgroup">
                <Opener name={group.title} isOpen={open.has(group.kind)} toggle={() => toggle(group.kind)} />
                <span class="faint"> {group.about}</span>
              </th>
              <td data-label="Source" class="faint">
                {plural(group.parts.length, "part")}
              </td>
              <Sizes chars={group.chars} tokens={group.tokens} total={total} kind={group.kind} />
            </tr>
            {open.has(group.kind) &&
              group.parts.map((part) => (
                <PartRows key={part.id} part={part} depth={1} total={total} open={open} toggle={toggle} />
              ))}
            {group === boundary && (
              <tr class="cache-line">
                <td colSpan={5}>
                  <span>The cache ends here: what is above is the same in the next conversation</span>
                </td>
              </tr>
            )}
          </tbody>
        ))}
      </table>
    </div>
  );
}

interface PartRowsProps {
  part: Part;
  depth: number;
  total: number;
  open: ReadonlySet<string>;
  toggle: (id: string) => void;
}

function PartRows({ part, depth, total, open, toggle }: PartRowsProps) {
  const isOpen = open.has(part.id);
  return (
    <>
      <tr>
        <td class={`depth-${depth}`}>
          {part.parts.length > 0 && <Opener name={`the parts of ${part.name}`} isOpen={isOpen} toggle={() => toggle(part.id)} isBare />}
          <button type="button" class="link" onClick={() => showPart(part)}>
            <bdi>{part.name}</bdi>
          </button>{" "}
          {part.change && <Badge tone="warn">{part.change}</Badge>}
        </td>
        <td data-label="Source" class="faint">
          <bdi>{part.source}</bdi>
        </td>
        <Sizes chars={part.chars} tokens={part.tokens} total={total} kind={part.kind} />
      </tr>
      {isOpen &&
        part.parts.map((child) => (
          <PartRows key={child.id} part={child} depth={depth + 1} total={total} open={open} toggle={toggle} />
        ))}
    </>
  );
}

function Opener({ name, isOpen, toggle, isBare }: { name: string; isOpen: boolean; toggle: () => void; isBare?: boolean }) {
  return (
    <button type="button" class="opener" aria-expanded={isOpen} aria-label={isBare ? `Show ${name}` : undefined} onClick={toggle}>
      <Icon name={isOpen ? "chevron-down" : "chevron-right"} size={14} />
      {!isBare && name}
    </button>
  );
}

function Sizes({ chars, tokens, total, kind }: { chars: number; tokens: number; total: number; kind: string }) {
  const share = total ? (100 * tokens) / total : 0;
  return (
    <>
      <td class="number" data-label="Characters">
        {chars ? chars.toLocaleString() : "–"}
      </td>
      <td class="number" data-label="Tokens">
        {tokens.toLocaleString()}
      </td>
      <td class="number" data-label="Share">
        <span class="share">
          <span class="share-bar" aria-hidden="true">
            <span class={`stack-${kind}`} style={{ width: `${Math.max(2, share)}%` }} />
          </span>
          {share.toFixed(1)} %
        </span>
      </td>
    </>
  );
}

function showPart(part: Part): void {
  const facts = [
    part.source,
    part.chars > 0 && plural(part.chars, "character"),
    plural(part.tokens, "token"),
    part.change && `${part.change} since the last turn`,
  ];
  openPanel(part.name, () => (
    <div class="stack">
      <p class="faint">{facts.filter(Boolean).join(" · ")}</p>
      {part.text === null ? (
        <p>{part.kind === "tools" ? "The schema of this tool is sent as data of the request." : "The conversation itself."}</p>
      ) : (
        <>
          <div class="row">
            <CopyButton text={part.text} label="Copy this part" />
            {part.id.startsWith("file:") && <Button onClick={() => go("files", part.name)}>Open the file</Button>}
          </div>
          <pre tabindex={0} role="group" aria-label="Text" class="wrapped tall">
            {reveal(part.text)}
          </pre>
        </>
      )}
    </div>
  ));
}
