// The configuration: each key with its documentation, default and origin; changes are shown before they are stored.
import { useState } from "preact/hooks";
import { call, may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { go, route } from "../core/router";
import { withCode } from "../core/text";
import type { ConfigValue, KeyFacts } from "../generated/wire";
import { Badge, Tabs } from "../parts/bits";
import { Button } from "../parts/button";
import { Field, SearchField, Select, Toggle } from "../parts/field";
import { ErrorCard, Skeleton } from "../parts/states";
import { Loaded, View } from "../parts/view";

type Changes = Map<string, unknown>;

export default function ConfigView() {
  const [tab, setTab] = useState("form");
  const config = useMethod("config.get", may("admin") ? {} : null, ["config.changed"]);
  return (
    <View title="Configuration" about="What is in effect, and where it comes from." needs="admin" wide>
      <Tabs
        label="Form or file"
        tabs={[
          ["form", "Form"],
          ["raw", "All values"],
        ]}
        current={tab}
        onChange={setTab}
      />
      <Loaded from={config}>
        {(data) =>
          tab === "raw" ? (
            <pre class="wrapped tall" tabindex={0} role="group" aria-label="All values">
              {JSON.stringify(data.value, null, 2)}
            </pre>
          ) : (
            <Form config={data} reload={config.reload} />
          )
        }
      </Loaded>
    </View>
  );
}

function Form({ config, reload }: { config: ConfigValue; reload: () => Promise<void> }) {
  const sections = Object.keys(config.value as object);
  const path = route.value.subject || sections[0]!;
  const [changes, setChanges] = useState<Changes>(new Map());
  const [wanted, setWanted] = useState("");
  const set = (key: string, value: unknown) => setChanges(new Map(changes).set(key, value));
  const section = path.split(".")[0]!;
  return (
    <div class="config">
      <nav class="config-sections" aria-label="Sections">
        {sections.map((name) => (
          <button
            key={name}
            type="button"
            aria-current={name === section ? "page" : undefined}
            onClick={() => go("config", name)}
          >
            {name}
          </button>
        ))}
      </nav>
      <div class="stack">
        <SearchField label="Open a key, for example gateway.port" value={wanted} onInput={setWanted} />
        {wanted.trim() && (
          <div>
            <Button icon="arrow-up" onClick={() => go("config", wanted.trim())}>
              Open {wanted.trim()}
            </Button>
          </div>
        )}
        {config.problems.map((problem) => (
          <ErrorCard key={problem} problem={problem} />
        ))}
        <Crumbs path={path} />
        <Keys key={path} path={path} changes={changes} set={set} />
        {changes.size > 0 && (
          <SaveBar config={config} changes={changes} clear={() => setChanges(new Map())} reload={reload} />
        )}
      </div>
    </div>
  );
}

function Crumbs({ path }: { path: string }) {
  const parts = path.split(".");
  return (
    <h2 class="crumbs">
      {parts.map((part, place) => (
        <span key={place}>
          {place > 0 && " . "}
          {place < parts.length - 1 ? (
            <button type="button" class="link" onClick={() => go("config", parts.slice(0, place + 1).join("."))}>
              {part}
            </button>
          ) : (
            part
          )}
        </span>
      ))}
    </h2>
  );
}

interface KeysProps {
  path: string;
  changes: Changes;
  set: (key: string, value: unknown) => void;
}

function Keys({ path, changes, set }: KeysProps) {
  const facts = useMethod("config.schema", { key: path }, ["config.changed"]);
  if (facts.problem) return <ErrorCard problem={facts.problem} retry={() => void facts.reload()} />;
  if (!facts.data) return <Skeleton />;
  const { keys, documentation } = facts.data;
  return (
    <>
      {documentation && <p class="faint">{withCode(documentation)}</p>}
      {keys.length ? (
        keys.map((key) => <Key key={key} path={key.includes(".") ? key : `${path}.${key}`} changes={changes} set={set} />)
      ) : (
        <KeyForm facts={facts.data} changes={changes} set={set} />
      )}
    </>
  );
}

function Key({ path, changes, set }: KeysProps) {
  const facts = useMethod("config.schema", { key: path }, ["config.changed"]);
  if (!facts.data) return facts.problem ? <ErrorCard problem={facts.problem} /> : null;
  if (facts.data.keys.length) {
    return (
      <button type="button" class="config-group" onClick={() => go("config", path)}>
        <b>{path.split(".").at(-1)}</b>
        <span class="faint">{facts.data.documentation || plain(facts.data.keys)}</span>
      </button>
    );
  }
  return <KeyForm facts={facts.data} changes={changes} set={set} />;
}

function plain(keys: string[]): string {
  return keys.slice(0, 8).join(", ");
}

function KeyForm({ facts, changes, set }: { facts: KeyFacts } & Omit<KeysProps, "path">) {
  const isChanged = changes.has(facts.key);
  const value = isChanged ? changes.get(facts.key) : facts.value;
  const name = facts.key.split(".").at(-1)!;
  return (
    <div class={`config-key ${isChanged ? "is-changed" : ""}`}>
      <Control name={name} facts={facts} value={value} set={(fresh) => set(facts.key, fresh)} />
      <p class="faint">{withCode(facts.documentation)}</p>
      <p class="row wrap faint">
        <span title={facts.origin}>
          <Badge tone={facts.origin === "default" ? "plain" : "accent"}>{facts.origin.split("/").at(-1) || "unknown"}</Badge>
        </span>
        <span>
          {facts.type} · default {show(facts.default)}
        </span>
        {facts.reload === "restart" && <Badge tone="warn">needs a restart</Badge>}
        {facts.pending && <Badge tone="warn">not used yet</Badge>}
        {facts.origin !== "default" && !isChanged && (
          <Button kind="quiet" onClick={() => set(facts.key, undefined)}>
            Use the default
          </Button>
        )}
      </p>
    </div>
  );
}

function show(value: unknown): string {
  const text = value === null || value === undefined ? "nothing" : JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

interface ControlProps {
  name: string;
  facts: KeyFacts;
  value: unknown;
  set: (value: unknown) => void;
}

function Control({ name, facts, value, set }: ControlProps) {
  const [text, setText] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  if (typeof facts.default === "boolean" || typeof value === "boolean") {
    return <Toggle label={name} checked={Boolean(value)} onChange={set} />;
  }
  if (facts.allowed.length) {
    const options = facts.allowed.map((each) => [String(each), String(each)] as const);
    const chosen = facts.allowed.includes(value) ? String(value) : "";
    const all = chosen ? options : ([["", "not set"], ...options] as const);
    const pick = (fresh: string) => set(facts.allowed.find((each) => String(each) === fresh));
    return <Select label={name} value={chosen} options={all} onChange={pick} />;
  }
  const isText = typeof value === "string" || (/^(text|a text|a string)/.test(facts.type) && !value);
  const written = text ?? (value === null || value === undefined ? "" : isText ? String(value) : JSON.stringify(value));
  const typed = (fresh: string) => {
    setText(fresh);
    if (isText) {
      set(fresh);
      return;
    }
    try {
      set(fresh.trim() === "" ? undefined : JSON.parse(fresh));
      setProblem("");
    } catch {
      if (/^(\[|\{|")/.test(fresh.trim())) setProblem("This is not complete JSON yet.");
      else set(fresh);
    }
  };
  return <Field label={name} value={written} onInput={typed} problem={problem} mono={!isText} />;
}

interface SaveProps {
  config: ConfigValue;
  changes: Changes;
  clear: () => void;
  reload: () => Promise<void>;
}

function SaveBar({ config, changes, clear, reload }: SaveProps) {
  const [problem, setProblem] = useState("");
  const save = async () => {
    setProblem("");
    const list = [...changes].map(([key, value]) => (value === undefined ? { key, unset: true } : { key, value }));
    try {
      await call("config.patch", { baseHash: config.hash, changes: list });
      clear();
      await reload();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <div class="save-bar" role="region" aria-label="Changes">
      <ul class="diff-list">
        {[...changes].map(([key, value]) => (
          <li key={key}>
            <code>{key}</code> <span class="code-removed">− {show(valueAt(config.value, key))}</span>{" "}
            <span class="code-added">+ {value === undefined ? "default" : show(value)}</span>
          </li>
        ))}
      </ul>
      {problem && (
        <p class="problem" role="alert">
          {problem} <Button onClick={reload}>Read the file again</Button>
        </p>
      )}
      <div class="row end">
        <Button onClick={clear}>Discard</Button>
        <Button kind="primary" icon="save" onClick={save}>
          Save
        </Button>
      </div>
    </div>
  );
}

function valueAt(config: unknown, key: string): unknown {
  return key.split(".").reduce<any>((found, part) => found?.[part], config);
}
