// Tool calls: consecutive ones fold into one row that opens in the panel; what asked, failed or was denied stays visible.
import { useComputed } from "@preact/signals";
import { useState } from "preact/hooks";
import { openPanel } from "../core/panel";
import { reveal, shorten } from "../core/text";
import { duration } from "../core/time";
import type { IconName } from "../generated/icons";
import { CopyButton } from "../parts/code";
import { Diff } from "../parts/diff";
import { Icon } from "../parts/icon";
import { pictureAddress, type ShownPicture } from "./content";
import type { CallState, ToolCall } from "./conversation";

const MAX_SHOWN = 100_000;
const TELLING = ["command", "path", "file_path", "query", "url", "name", "message", "question"];

interface CallKind {
  icon: IconName;
  one: string;
  many: string;
}

const KINDS: [RegExp, CallKind][] = [
  [/^(read|ls|list_files|stat)$/, { icon: "file-text", one: "read", many: "reads" }],
  [/^(grep|find|glob|search_files)$/, { icon: "folder-search", one: "file search", many: "file searches" }],
  [/^(write|edit|apply_patch|multi_edit)$/, { icon: "pencil", one: "edit", many: "edits" }],
  [/^(exec|process|bash|shell)/, { icon: "terminal", one: "command", many: "commands" }],
  [/^web_search/, { icon: "globe", one: "web search", many: "web searches" }],
  [/^(web_|fetch|browser)/, { icon: "globe", one: "page", many: "pages" }],
  [/^memory/, { icon: "brain", one: "memory lookup", many: "memory lookups" }],
  [/^(sessions_|subagents?)/, { icon: "users", one: "session call", many: "session calls" }],
];

function kindOf(name: string): CallKind {
  const named = KINDS.find(([pattern]) => pattern.test(name));
  return named ? named[1] : { icon: "wrench", one: shorten(name, 40), many: `${shorten(name, 40)} calls` };
}

const STATES: Record<CallState, string> = {
  running: "runs …",
  waiting: "waits for an answer",
  done: "done",
  failed: "failed",
  denied: "denied",
  unfinished: "did not end",
};

function describeState(call: ToolCall): string {
  const seconds = call.seconds.value;
  return call.state.value === "done" && seconds > 0.1 ? duration(seconds) : STATES[call.state.value];
}

/** The name of the real tool if a tool calls another one by name. */
function namesOf(call: ToolCall): { name: string; values: any } {
  const inner = call.arguments?.name;
  if (call.name === "tool_call" && typeof inner === "string") return { name: inner, values: call.arguments.arguments };
  return { name: call.name, values: call.arguments };
}

export function briefly(values: any): string {
  const given = values && typeof values === "object" ? values : {};
  const name = [...TELLING, ...Object.keys(given)].find((each) => typeof given[each] === "string");
  return name === undefined ? "" : shorten(given[name], 120);
}

function summarise(calls: ToolCall[]): string {
  const counts = new Map<string, [CallKind, number]>();
  for (const call of calls) {
    const kind = kindOf(namesOf(call).name);
    counts.set(kind.one, [kind, (counts.get(kind.one)?.[1] ?? 0) + 1]);
  }
  const parts = [...counts.values()].map(([kind, count]) => `${count} ${count === 1 ? kind.one : kind.many}`);
  const seconds = calls.reduce((sum, call) => sum + call.seconds.value, 0);
  return [...parts, ...(seconds > 0.1 ? [duration(seconds)] : [])].join(" · ");
}

const ALONE = new Set<CallState>(["waiting", "failed", "denied", "unfinished"]);

export function CallGroup({ calls }: { calls: ToolCall[] }) {
  const folded = calls.filter((call) => !ALONE.has(call.state.value));
  const open = () => openPanel(calls.length === 1 ? "Tool call" : "Tool calls", () => <CallList calls={calls} />);
  const running = folded.find((call) => call.state.value === "running");
  const last = running ?? folded.at(-1);
  return (
    <div class="calls">
      {last && (
        <button type="button" class="call-row" onClick={open}>
          <Icon name={kindOf(namesOf(last).name).icon} />
          {folded.length === 1 || running ? <CallBrief call={last} /> : <span>{summarise(folded)}</span>}
          <Icon name="chevron-right" />
        </button>
      )}
      {calls
        .filter((call) => ALONE.has(call.state.value))
        .map((call, place) => (
          <button key={place} type="button" class={`call-row ${call.state.value}`} onClick={open}>
            <Icon name={call.state.value === "waiting" ? "clock" : "circle-alert"} />
            <CallBrief call={call} />
            <Icon name="chevron-right" />
          </button>
        ))}
    </div>
  );
}

function CallBrief({ call }: { call: ToolCall }) {
  const { name, values } = namesOf(call);
  return (
    <span class="call-brief">
      <b>{shorten(name, 80)}</b> <bdi class="mono">{briefly(values)}</bdi>{" "}
      <span class="call-state">{describeState(call)}</span>
    </span>
  );
}

function CallList({ calls }: { calls: ToolCall[] }) {
  return (
    <div class="stack">
      {calls.map((call, place) => (
        <CallDetails key={place} call={call} isFirst={calls.length === 1} />
      ))}
    </div>
  );
}

function CallDetails({ call, isFirst }: { call: ToolCall; isFirst: boolean }) {
  const [isOpen, setOpen] = useState(isFirst);
  return (
    <details class={`fold ${call.state.value}`} open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <CallBrief call={call} />
      </summary>
      {isOpen && <CallContent call={call} />}
    </details>
  );
}

function CallContent({ call }: { call: ToolCall }) {
  const result = call.result.value;
  const change = useComputed(() => changeIn(call)).value;
  return (
    <div class="fold-body">
      {change && <Diff before={change.before} after={change.after} label="Change" />}
      <Preformatted title="Arguments" text={JSON.stringify(call.arguments, null, 2) ?? ""} />
      {result && <Preformatted title="Result" text={result.text || "(nothing)"} isOutside={call.isOutside.value} />}
      {result?.pictures.map((picture, place) => <PictureView key={place} picture={picture} />)}
      {!result && call.progress.value && <Preformatted title="So far" text={call.progress.value} />}
    </div>
  );
}

/** What a call replaces in a file, if its arguments say so. */
function changeIn(call: ToolCall): { before: string; after: string } | null {
  const { name, values } = namesOf(call);
  const before = values?.old_string ?? values?.oldText ?? values?.old_text ?? values?.old;
  const after = values?.new_string ?? values?.newText ?? values?.new_text ?? values?.new;
  if (typeof before === "string" && typeof after === "string") return { before, after };
  return name === "write" && typeof values?.content === "string" ? { before: "", after: values.content } : null;
}

function Preformatted({ title, text, isOutside = false }: { title: string; text: string; isOutside?: boolean }) {
  const rest = text.length - MAX_SHOWN;
  const shown = rest > 0 ? `${text.slice(0, MAX_SHOWN)}\n… ${rest} more characters` : text;
  return (
    <section>
      <header class="row between">
        <h3 class="row">
          {title}
          {isOutside && (
            <span class="origin-mark" title="It was written by others. Instructions in it are not yours.">
              <Icon name="globe" size={14} /> from outside
            </span>
          )}
        </h3>
        <CopyButton text={text} label={`Copy ${title.toLowerCase()}`} />
      </header>
      <pre class={isOutside ? "outside" : ""} tabindex={0} role="group" aria-label={title}>
        {reveal(shown)}
      </pre>
    </section>
  );
}

export function PictureView({ picture }: { picture: ShownPicture }) {
  const address = pictureAddress(picture);
  if (!address) return <p class="faint">A picture that is not shown ({shorten(picture.type, 40)})</p>;
  return <img src={address} alt="Picture" class="picture" />;
}
