// The files of an agent's workspace: read, change, compare, and store only what nobody changed meanwhile.
import { useEffect, useState } from "preact/hooks";
import { attempting, call } from "../core/gateway";
import { useMethod } from "../core/resource";
import { shorten } from "../core/text";
import type { FileText, WorkspaceFile } from "../generated/wire";
import { MarkdownView } from "../chat/messages";
import { AgentChoice } from "../parts/agent_choice";
import { Badge, short, Tabs, Time } from "../parts/bits";
import { Button } from "../parts/button";
import { askText, confirm } from "../parts/dialog";
import { Diff } from "../parts/diff";
import { SearchField } from "../parts/field";
import { EmptyState, ErrorCard, Skeleton } from "../parts/states";
import { Loaded, View } from "../parts/view";
import { moveInList } from "../core/keyboard";
import { may } from "../core/gateway";

export default function FilesView() {
  const [agent, setAgent] = useState<string | null>(null);
  const [wanted, setWanted] = useState("");
  const [open, setOpen] = useState<{ path: string; isNew: boolean } | null>(null);
  const files = useMethod("workspace.list", may("admin") ? { agent } : null);
  const create = async () => {
    const path = await askText("New file", "Path, for example memory/trip.md", "memory/", "Create");
    if (path?.trim()) setOpen({ path: path.trim(), isNew: true });
  };
  return (
    <View
      title="Files"
      about="The folder of the agent: who it is, what it knows, how it works."
      needs="admin"
      wide
      actions={
        <>
          <AgentChoice
            value={agent}
            onChange={(id) => {
              setAgent(id);
              setOpen(null);
            }}
          />
          <Button icon="plus" onClick={create}>
            New file
          </Button>
        </>
      }
    >
      <Loaded from={files}>
        {({ files: all, folder, complete }) => (
          <div class="files">
            <div class="stack">
              <SearchField label="Filter files" value={wanted} onInput={setWanted} />
              <FileList files={all} wanted={wanted} open={open?.path ?? ""} choose={(path) => setOpen({ path, isNew: false })} />
              <p class="faint">
                <code>{folder}</code> {!complete && "Only the first files are shown."}
              </p>
            </div>
            {open ? (
              <Editor key={`${agent} ${open.path}`} agent={agent} path={open.path} isNew={open.isNew} stored={files.reload} />
            ) : (
              <EmptyState icon="file-text" title="Choose a file">
                <code>AGENTS.md</code> says how the agent works, <code>SOUL.md</code> who it is, <code>USER.md</code> who you
                are.
              </EmptyState>
            )}
          </div>
        )}
      </Loaded>
    </View>
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
  const ordered = [...found].sort((a, b) => Number(b.inPrompt) - Number(a.inPrompt));
  return (
    <ul class="file-list" onKeyDown={moveInList}>
      {ordered.slice(0, 300).map((file) => (
        <li key={file.path}>
          <button
            type="button"
            data-entry
            aria-current={file.path === open ? "true" : undefined}
            onClick={() => choose(file.path)}
          >
            <bdi>{file.path}</bdi>
            <span class="row">
              {file.inPrompt && <Badge tone="accent">in prompt</Badge>}
              <span class="faint">
                {short(file.size)} B, <Time when={file.modifiedAt} />
              </span>
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}

interface EditorProps {
  agent: string | null;
  path: string;
  isNew: boolean;
  stored: () => Promise<void>;
}

const MODES = [
  ["edit", "Edit"],
  ["preview", "Preview"],
  ["changes", "Changes"],
] as const;

function Editor({ agent, path, isNew, stored }: EditorProps) {
  const [file, setFile] = useState<FileText | null>(isNew ? { path, text: "", hash: "" } : null);
  const [text, setText] = useState("");
  const [mode, setMode] = useState("edit");
  const [problem, setProblem] = useState("");
  const read = async () => {
    setProblem("");
    try {
      const found = await call("workspace.read", { agent, path });
      setFile(found);
      setText(found.text);
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  useEffect(() => {
    if (!isNew) void read();
  }, []);
  if (!file) return problem ? <ErrorCard problem={problem} retry={read} /> : <Skeleton />;
  const isChanged = text !== file.text;
  const save = async () => {
    setProblem("");
    try {
      const { hash } = await call("workspace.write", { agent, path, text, baseHash: file.hash || null });
      setFile({ path, text, hash });
      await attempting(stored);
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const readAgain = async () => {
    if (!isChanged || (await confirm("Read the file again?", "Your changes are lost.", "Read it"))) await read();
  };
  return (
    <section class="editor stack" aria-label={path}>
      <header class="row between wrap">
        <h2>
          <bdi>{shorten(path, 100)}</bdi> {isChanged && <Badge tone="warn">not stored</Badge>}
        </h2>
        <span class="row">
          <Button icon="refresh-cw" onClick={readAgain} disabled={isNew && !file.hash}>
            Read again
          </Button>
          <Button kind="primary" icon="save" onClick={save} disabled={!isChanged}>
            Save
          </Button>
        </span>
      </header>
      {problem && <ErrorCard problem={problem} />}
      <Tabs label="Mode" tabs={MODES} current={mode} onChange={setMode} />
      {mode === "edit" && (
        <textarea
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
