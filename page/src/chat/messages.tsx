// The items of a conversation as people read them.
import { memo } from "preact/compat";
import { useRef, useState } from "preact/hooks";
import { clockTime, exactTime } from "../core/time";
import { Avatar } from "../parts/bits";
import { Button, IconButton } from "../parts/button";
import { CopyButton } from "../parts/code";
import { Icon } from "../parts/icon";
import { CallGroup, PictureView } from "./calls";
import type { Answer, Item, NoteItem, PersonItem, Piece, Prose, ToolCall } from "./conversation";
import { type BlockCache, renderMarkdown } from "./markdown";
import { SentFiles } from "./sent_files";

export interface ItemActions {
  /** Put a message into the message field, to change it and go on from there in a branch. */
  edit(item: PersonItem): void;
  /** Send the message that an answer belongs to again. */
  retry(answer: Answer): void;
  mayWrite: boolean;
}

export const ItemView = memo(function ItemView({ item, actions }: { item: Item; actions: ItemActions }) {
  switch (item.kind) {
    case "person":
      return <PersonView item={item} actions={actions} />;
    case "note":
      return <NoteView item={item} />;
    case "answer":
      return <AnswerView answer={item} actions={actions} />;
  }
});

function Moment({ when }: { when: string | null }) {
  if (!when) return null;
  return (
    <time class="moment" dateTime={when} title={exactTime(when)}>
      {clockTime(when)}
    </time>
  );
}

function PersonView({ item, actions }: { item: PersonItem; actions: ItemActions }) {
  const { own } = item;
  return (
    <article class="said person">
      <header class="said-head">
        <h2 class="speaker">
          <bdi>{item.name}</bdi>
        </h2>
        <Moment when={item.when} />
      </header>
      <div class="bubble">
        {item.text && (
          <p class="plain" dir="auto">
            {item.text}
          </p>
        )}
        {item.pictures.map((picture, place) => (
          <PictureView key={place} picture={picture} />
        ))}
      </div>
      {own && <OwnState item={item} />}
      <div class="said-actions">
        {item.text && <CopyButton text={item.text} />}
        {item.text && actions.mayWrite && (
          <IconButton icon="pencil" label="Edit and send again" class="small" onClick={() => actions.edit(item)} />
        )}
      </div>
    </article>
  );
}

function OwnState({ item: { own } }: { item: PersonItem }) {
  const { state, problem, retry } = own!;
  if (!state.value && !problem.value) return null;
  return (
    <p class="own-state faint" role="status">
      {state.value}
      {problem.value && (
        <>
          <span class="problem">{problem.value}</span> <Button onClick={() => retry.value?.()}>Send again</Button>
        </>
      )}
    </p>
  );
}

function NoteView({ item }: { item: NoteItem }) {
  return (
    <article class={`note ${item.isProblem ? "problem-note" : ""}`}>
      <Icon name={item.isProblem ? "circle-alert" : "info"} />
      <p class="plain" dir="auto" role={item.isProblem ? "alert" : undefined}>
        {item.text}
      </p>
    </article>
  );
}

function AnswerView({ answer, actions }: { answer: Answer; actions: ItemActions }) {
  const pieces = answer.pieces.value;
  const isOpen = answer.isOpen.value;
  const { name, emoji } = answer.who;
  return (
    <article class="said agent">
      <header class="said-head">
        <Avatar name={name} emoji={emoji} size={24} />
        <h2 class="speaker">
          <bdi>{name}</bdi>
        </h2>
        <Moment when={answer.when} />
        {answer.model.value && <span class="moment said-model">{answer.model.value.split("/").at(-1)}</span>}
      </header>
      {group(pieces).map((part, place) => (
        <PieceView key={place} part={part} isOpen={isOpen} />
      ))}
      {isOpen && <Working pieces={pieces} />}
      {!isOpen && (
        <div class="said-actions">
          {answer.text && <CopyButton text={() => answer.text} label="Copy answer" />}
          {actions.mayWrite && (
            <IconButton icon="rotate-ccw" label="Try again" class="small" onClick={() => actions.retry(answer)} />
          )}
        </div>
      )}
    </article>
  );
}

type Part = Exclude<Piece, { kind: "call" }> | { kind: "calls"; calls: ToolCall[] };

/** The pieces, with consecutive calls as one part. */
function group(pieces: Piece[]): Part[] {
  const parts: Part[] = [];
  for (const piece of pieces) {
    const last = parts.at(-1);
    if (piece.kind !== "call") parts.push(piece);
    else if (last?.kind === "calls") last.calls.push(piece.call);
    else parts.push({ kind: "calls", calls: [piece.call] });
  }
  return parts;
}

function PieceView({ part, isOpen }: { part: Part; isOpen: boolean }) {
  switch (part.kind) {
    case "text":
      return <ProseView prose={part.prose} />;
    case "thinking":
      return <Thinking text={part.text.value} isOpen={isOpen} />;
    case "calls":
      return <CallGroup calls={part.calls} />;
    case "files":
      return <SentFiles paths={part.paths} />;
    case "notice":
      return (
        <p
          class={`notice ${part.tone}`}
          role={part.tone === "problem" && isOpen ? "alert" : undefined}
          dir="auto"
        >
          {part.text}
        </p>
      );
  }
}

const ProseView = memo(function ProseView({ prose }: { prose: Prose }) {
  const cache = useRef<BlockCache>(new Map());
  return <MarkdownView text={prose.shown.value} cache={cache.current} />;
});

export function MarkdownView({ text, cache }: { text: string; cache?: BlockCache }) {
  return (
    <div class="prose" dir="auto">
      {renderMarkdown(text, cache)}
    </div>
  );
}

function Thinking({ text, isOpen }: { text: string; isOpen: boolean }) {
  const [shows, setShows] = useState(false);
  return (
    <details class="thinking" open={shows} onToggle={(event) => setShows(event.currentTarget.open)}>
      <summary>{isOpen ? "Thinking …" : "Thinking"}</summary>
      {shows && (
        <p class="plain" dir="auto">
          {text}
        </p>
      )}
    </details>
  );
}

/** Three dots while nothing else moves. */
function Working({ pieces }: { pieces: Piece[] }) {
  const last = pieces.at(-1);
  if (last?.kind === "call" && last.call.state.value === "running") return null;
  return <span class="working" aria-hidden="true" />;
}
