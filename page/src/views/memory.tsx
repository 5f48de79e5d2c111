// Search in an agent's notes: where each hit is, why it was found, and the note itself.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, may } from "../core/gateway";
import { closePanel, openPanel } from "../core/panel";
import { useMethod } from "../core/resource";
import { go } from "../core/router";
import { plural, reveal, shorten } from "../core/text";
import type { MemoryExcerpt, MemoryHit, MemoryStatus } from "../generated/wire";
import { AgentChoice } from "../parts/agent_choice";
import { Badge, Meter, Time } from "../parts/bits";
import { Button } from "../parts/button";
import { SearchField } from "../parts/field";
import { excerpt, hasWord, marked } from "../parts/marked";
import { EmptyState, ErrorCard, Skeleton } from "../parts/states";
import { Loaded, View } from "../parts/view";

const PAUSE_MS = 250;
const AROUND = 40;
/** Notes in the workspace, which the editor can open; transcripts and notes elsewhere are only read. */
const NOTES = /^(memory\/|[\w.-]+\.md$)/i;

export default function MemoryView() {
  const [agent, setAgent] = useState<string | null>(null);
  const [typed, setTyped] = useState("");
  const [query, setQuery] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setQuery(typed.trim()), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  const status = useMethod("memory.status", { agent });
  const found = useMethod("memory.search", query ? { agent, query, maxResults: 20 } : null);
  return (
    <View
      title="Memory"
      about="What the agent wrote down, found by words and by meaning."
      actions={<AgentChoice value={agent} onChange={setAgent} />}
    >
      <Loaded from={status}>{(data) => <Status status={data} />}</Loaded>
      <SearchField label="Search the notes" value={typed} onInput={setTyped} autofocus />
      {!query && (
        <EmptyState icon="brain" title="Ask the notes">
          Type words or a question: “what does Ada need for the talk?”
        </EmptyState>
      )}
      {query && found.problem && <ErrorCard problem={found.problem} retry={() => void found.reload()} />}
      {query && !found.data && !found.problem && <Skeleton />}
      {query && found.data && (
        <>
          {found.data.reason && <p class="faint">{found.data.reason}</p>}
          {found.data.hits.length ? (
            <ol class="rows hits" aria-label="Hits">
              {found.data.hits.map((hit) => (
                <Hit key={`${hit.path}:${hit.startLine}`} hit={hit} query={query} agent={agent} />
              ))}
            </ol>
          ) : (
            <EmptyState icon="search" title="Nothing was found">
              Other words may help; notes are files below <code>memory/</code> and <code>MEMORY.md</code>.
            </EmptyState>
          )}
        </>
      )}
    </View>
  );
}

function Status({ status }: { status: MemoryStatus }) {
  if (!status.enabled) {
    return (
      <p class="note">
        Memory search is off. Set <code>agents.defaults.memorySearch.enabled</code>.
      </p>
    );
  }
  return (
    <p class="memory-status faint">
      <Badge tone="ok">index ready</Badge>
      <span>{plural(status.files, "note")}</span>
      <span>{plural(status.chunks, "passage")}</span>
      <span title={status.model ?? undefined}>
        {status.embedded ? `${status.embedded} found by meaning (${status.provider ?? "local"})` : "found by words alone"}
      </span>
      <span>
        synced <Time when={status.lastSync} />
      </span>
    </p>
  );
}

function Hit({ hit, query, agent }: { hit: MemoryHit; query: string; agent: string | null }) {
  const lines = hit.startLine === hit.endLine ? `line ${hit.startLine}` : `lines ${hit.startLine}–${hit.endLine}`;
  const open = async () => {
    const start = Math.max(1, hit.startLine - AROUND);
    const note = await call("memory.get", { agent, path: hit.path, start, lines: hit.endLine - start + 1 + AROUND });
    openPanel(hit.path, () => <Note note={note} hit={hit} query={query} agent={agent} />);
  };
  return (
    <li>
      <div class="row-text">
        <p class="row wrap">
          <button type="button" class="link" onClick={() => void open()}>
            <bdi>{hit.path}</bdi>
          </button>
          <span class="faint">{lines}</span>
          {hit.origin !== "owner" && hit.origin !== "agent" && <Badge tone="warn">{shorten(hit.origin, 40)}</Badge>}
        </p>
        <p class="snippet">{marked(excerpt(hit.snippet, query, 300), query)}</p>
      </div>
      <Reasons hit={hit} />
    </li>
  );
}

/** Why a hit was found: a bar for each part of its score. */
function Reasons({ hit }: { hit: MemoryHit }) {
  const { parts } = hit;
  const bars = parts
    ? ([
        ["words", parts.words],
        ["meaning", parts.meaning],
        ["recency", parts.recency],
      ] as const)
    : [];
  return (
    <div class="reasons">
      <Meter label="Score" value={hit.score} max={1} isLimit={false} />
      {bars.map(([name, value]) => (
        <span key={name} class="reason" title={`${name}: ${Math.round(value * 100)} %`}>
          <span>{name}</span>
          <span class="reason-bar" aria-hidden="true">
            <span style={{ width: `${Math.min(1, value) * 100}%` }} />
          </span>
          <span class="unseen">{Math.round(value * 100)} %</span>
        </span>
      ))}
    </div>
  );
}

/** The note, scrolled to the first line of the hit that has a word of the query. */
function Note({ note, hit, query, agent }: { note: MemoryExcerpt; hit: MemoryHit; query: string; agent: string | null }) {
  const root = useRef<HTMLPreElement>(null);
  const edit = () => {
    closePanel();
    go("files", hit.path, { ...(agent && { agent }), line: String(hit.startLine) });
  };
  useEffect(() => {
    const lines = [...root.current!.querySelectorAll(".is-hit")];
    (lines.find((line) => hasWord(line.textContent, query)) ?? lines[0])?.scrollIntoView({ block: "center" });
  }, []);
  return (
    <div class="stack">
      {may("admin") && NOTES.test(hit.path) && (
        <div>
          <Button icon="pencil" onClick={edit}>
            Edit from line {hit.startLine}
          </Button>
        </div>
      )}
      <pre ref={root} class="note-lines wrapped" tabindex={0} role="group" aria-label="Note">
      {note.text.split("\n").map((line, place) => {
        const number = note.startLine + place;
        const isHit = number >= hit.startLine && number <= hit.endLine;
        return (
          <span key={number} class={isHit ? "is-hit" : ""}>
            <span class="line-number" aria-hidden="true">
              {number}
            </span>
            {reveal(line)}
            {"\n"}
          </span>
        );
      })}
      </pre>
    </div>
  );
}
