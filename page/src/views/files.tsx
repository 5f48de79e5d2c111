// The files of an agent's workspace: read, change, compare, and store only what nobody changed meanwhile.
import { useEffect, useRef, useState } from "preact/hooks";
import { attempting, call, may } from "../core/gateway";
import { moveInList } from "../core/keyboard";
import { useMethod } from "../core/resource";
import { go, route } from "../core/router";
import { shorten } from "../core/text";
import type { FileText, WorkspaceFile } from "../generated/wire";
import { MarkdownView } from "../chat/messages";
import { AgentChoice } from "../parts/agent_choice";
import { Badge, Tabs, Time } from "../parts/bits";
import { Button, IconButton } from "../parts/button";
import { askText, confirm } from "../parts/dialog";
import { Diff } from "../parts/diff";
import { SearchField } from "../parts/field";
import { Icon } from "../parts/icon";
import { EmptyState, ErrorCard, Skeleton } from "../parts/states";
import { toast } from "../parts/toast";
import { Loaded, View } from "../parts/view";

export default function FilesView() {
  const { subject, query } = route.value;
  const agent = query.get("agent");
  const setAgent = (id: string | null) => go("files", "", id ? { agent: id } : {});
  return (
    <View
      title="Files"
      about="The folder of the agent: who it is, what it knows, how it works."
      needs="admin"
      wide
      actions={<AgentChoice value={agent} onChange={setAgent} />}
    >
      <AgentFiles
        key={agent}
        agent={agent}
        path={subject}
        show={(path) => go("files", path, agent ? { agent } : {})}
      />
    </View>
  );
}

interface AgentFilesProps {
  agent: string | null;
  /** The file that the address names; empty for none. */
  path: string;
  /** Name a file in the address. */
  show: (path: string) => void;
}

/** The files of an agent beside an editor; on a phone either the list or the file. */
export function AgentFiles({ agent, path: named, show }: AgentFilesProps) {
  const [wanted, setWanted] = useState("");
  const [fresh, setFresh] = useState("");
  const open = named ? { path: named, isNew: named === fresh } : null;
  const line = Number(route.value.query.get("line")) || 0;
  const files = useMethod("workspace.list", may("admin") ? { agent } : null);
  const create = async () => {
    const path = await askText("New file", "Path, for example memory/trip.md", "memory/", "Create");
    if (!path?.trim()) return;
    setFresh(path.trim());
    show(path.trim());
  };
  return (
    <Loaded from={files}>
      {({ files: all, folder, complete }) => (
        <div class={`files ${open ? "with-file" : ""}`}>
          <div class="stack file-side">
            <div class="row">
              <SearchField label="Filter files" value={wanted} onInput={setWanted} />
              <IconButton icon="plus" label="New file" onClick={() => void create()} />
            </div>
            <FileList files={all} wanted={wanted} open={open?.path ?? ""} choose={show} />
            <p class="faint">
              <code>{folder}</code> {!complete && "Only the first files are shown."}
            </p>
          </div>
          {open ? (
            <div class="stack">
              <button type="button" class="back-link phone-only" onClick={() => show("")}>
                <Icon name="arrow-left" /> All files
              </button>
              <Editor
                key={`${open.path} ${line}`}
                agent={agent}
                line={line}
                path={open.path}
                isNew={open.isNew}
                facts={all.find(({ path }) => path === open.path)}
                stored={files.reload}
              />
            </div>
          ) : (
            <EmptyState icon="file-text" title="Choose a file">
              <code>AGENTS.md</code> says how the agent works, <code>SOUL.md</code> who it is, <code>USER.md</code> who you are.
            </EmptyState>
          )}
        </div>
      )}
    </Loaded>
  );
}

interface FileListProps {
  files: WorkspaceFile[];
  wanted: string;
  open: string;
  choose: (path: string) => void;
}

function FileList({ files, wanted, open, choose }: FileListProps) {
  const found = files.filter(({ path }) => path.toLowerCase().includes(wanted.trim().toLowerCase()));
  const groups = [
    ["In every prompt", found.filter(({ inPrompt }) => inPrompt)],
    ["Other files", found.filter(({ inPrompt }) => !inPrompt)],
  ] as const;
  return (
    <div class="file-list" onKeyDown={moveInList}>
      {groups.map(
        ([title, own]) =>
          own.length > 0 && (
            <section key={title} aria-label={title}>
              <h2 class="rail-title">{title}</h2>
              <ul>
                {own.slice(0, 300).map((file) => (
                  <li key={file.path}>
                    <button
                      type="button"
                      data-entry
                      aria-current={file.path === open ? "true" : undefined}
                      onClick={() => choose(file.path)}
                    >
                      <Icon name="file-text" size={14} />
                      <bdi>{file.path}</bdi>
                      <OriginMark file={file} isBrief />
                      <span class="faint">
                        <Time when={file.modifiedAt} />
                      </span>
                    </button>
                  </li>
                ))}
              </ul>
            </section>
          ),
      )}
      {!found.length && <p class="faint">No file has these letters.</p>}
    </div>
  );
}

/** Whose text a file is, if that is not the owner or the agent, and whether it is private. */
function OriginMark({ file, isBrief }: { file: WorkspaceFile; isBrief?: boolean }) {
  const isForeign = file.origin !== "owner" && file.origin !== "agent";
  const who = file.origin === "untrusted" ? "from outside" : `from ${file.origin}`;
  return (
    <>
      {isForeign && (
        <span class="origin-mark" title={`${file.lines ? "Some lines are" : "This text is"} ${who}${file.via ? ` (${file.via})` : ""}`}>
          <Icon name="globe" size={14} />
          {isBrief ? <span class="unseen">{who}</span> : shorten(who, 40)}
        </span>
      )}
      {file.private && (
        <span class="private-mark" title="Private: it does not leave this machine without your decision">
          <Icon name="lock" size={14} />
          {isBrief ? <span class="unseen">private</span> : "private"}
        </span>
      )}
    </>
  );
}

/** Put the cursor on a line and bring it into view: the browser scrolls to the cursor when the field gets the focus. */
function selectLine(field: HTMLTextAreaElement, line: number): void {
  const lines = field.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  field.setSelectionRange(start, start);
  field.blur();
  field.focus();
  field.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
}

interface EditorProps {
  agent: string | null;
  path: string;
  isNew: boolean;
  /** The line at which the file opens; 0 for the first one. */
  line: number;
  facts: WorkspaceFile | undefined;
  stored: () => Promise<void>;
}

const MODES = [
  ["edit", "Edit"],
  ["preview", "Preview"],
  ["changes", "Changes"],
] as const;

function Editor({ agent, path, isNew, line, facts, stored }: EditorProps) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [file, setFile] = useState<FileText | null>(isNew ? { path, text: "", hash: "" } : null);
  const [text, setText] = useState("");
  const [mode, setMode] = useState("edit");
  const [problem, setProblem] = useState("");
  const read = async () => {
    setProblem("");
    try {
      const found = await call("workspace.read", { agent, path });
      setText(found.text);
      setFile(found);
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  useEffect(() => {
    if (!isNew) void read();
  }, []);
  useEffect(() => {
    if (file && line) selectLine(field.current!, line);
  }, [file === null]);
  if (!file) return problem ? <ErrorCard problem={problem} retry={read} /> : <Skeleton />;
  const isChanged = text !== file.text;
  const save = async () => {
    setProblem("");
    try {
      const { hash } = await call("workspace.write", { agent, path, text, baseHash: file.hash || null });
      setFile({ path, text, hash });
      await attempting(stored);
      toast(`${path} was saved.`, undefined, "save");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const readAgain = async () => {
    if (!isChanged || (await confirm("Read the file again?", "Your changes are lost.", "Read it"))) await read();
  };
  const isForeign = facts && facts.origin !== "owner" && facts.origin !== "agent";
  const accept = async () => {
    const what = "What it says then counts as your own words, also in instructions to the agent.";
    if (await confirm(`Accept “${path}” as yours?`, what, "Accept it", false)) {
      await call("workspace.vouch", { agent, path });
      await stored();
    }
  };
  return (
    <section class="editor stack" aria-label={path}>
      <header class="row between wrap">
        <h2 class="row wrap">
          <bdi>{shorten(path, 100)}</bdi> {facts?.inPrompt && <Badge tone="accent">in every prompt</Badge>}{" "}
          {facts && <OriginMark file={facts} />} {isChanged && <Badge tone="warn">not stored</Badge>}
        </h2>
        <span class="row">
          {isForeign && (
            <Button icon="shield-check" onClick={accept} title="Accept the present content as your own">
              Accept as mine
            </Button>
          )}
          <IconButton icon="refresh-cw" label="Read again" onClick={() => void readAgain()} disabled={isNew && !file.hash} />
          <Button kind="primary" icon="save" onClick={save} disabled={!isChanged}>
            Save
          </Button>
        </span>
      </header>
      {problem && <ErrorCard problem={problem} />}
      <Tabs label="Mode" tabs={MODES} current={mode} onChange={setMode} />
      {mode === "edit" && (
        <textarea
          ref={field}
          class="mono editor-text"
          aria-label={`Text of ${path}`}
          value={text}
          spellcheck={false}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if ((event.ctrlKey || event.metaKey) && event.key === "s") {
              event.preventDefault();
              void save();
            }
          }}
        />
      )}
      {mode === "preview" && <MarkdownView text={text} />}
      {mode === "changes" &&
        (isChanged ? <Diff before={file.text} after={text} label="Changes" /> : <p class="faint">Nothing was changed.</p>)}
    </section>
  );
}
