// The configuration: each key with its documentation, default and origin; changes are shown before they are stored.
import { useEffect, useState } from "preact/hooks";
import { call, may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { go, route } from "../core/router";
import { humanize, plural, withCode } from "../core/text";
import type { IconName } from "../generated/icons";
import type { ConfigValue, KeyFacts } from "../generated/wire";
import { Badge, Tabs } from "../parts/bits";
import { Button } from "../parts/button";
import { CopyButton, highlight } from "../parts/code";
import { Field, SearchField, Select, Toggle } from "../parts/field";
import { Icon } from "../parts/icon";
import { ErrorCard, Skeleton } from "../parts/states";
import { toast } from "../parts/toast";
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
          ["raw", "As JSON"],
        ]}
        current={tab}
        onChange={setTab}
      />
      <Loaded from={config}>
        {(data) =>
          tab === "raw" ? (
            <>
              <p class="row wrap faint">
                Every value in effect, without secrets. <CopyButton text={() => JSON.stringify(data.value, null, 2)} />
              </p>
              <pre class="wrapped tall" tabindex={0} role="group" aria-label="All values">
                {highlight(JSON.stringify(data.value, null, 2), "json")}
              </pre>
            </>
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
  useEffect(() => setWanted(""), [path]);
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
            <Icon name={ICONS[name] ?? "settings"} />
            {SECTIONS[name] ?? humanize(name)}
          </button>
        ))}
      </nav>
      <div class="stack">
        <SearchField label="Find a setting, for example port or time zone" value={wanted} onInput={setWanted} />
        {wanted.trim() && <Matches query={wanted.trim()} close={() => setWanted("")} />}
        {config.problems.map((problem) => (
          <ErrorCard key={problem} problem={problem} />
        ))}
        {!wanted.trim() && (
          <>
            <Crumbs path={path} />
            <Keys key={path} path={path} changes={changes} set={set} />
          </>
        )}
        {changes.size > 0 && (
          <SaveBar config={config} changes={changes} clear={() => setChanges(new Map())} reload={reload} />
        )}
      </div>
    </div>
  );
}

const SECTIONS: Record<string, string> = { mcp: "MCP servers", auth: "Sign-in at providers", cron: "Jobs", ui: "Appearance" };
const ICONS: Record<string, IconName> = {
  agents: "bot",
  auth: "key-round",
  backup: "archive",
  bindings: "cable",
  channels: "smartphone",
  commands: "terminal",
  cron: "calendar-clock",
  gateway: "globe",
  hooks: "webhook",
  logging: "scroll-text",
  mcp: "plug",
  memory: "brain",
  messages: "message-square",
  models: "cpu",
  plugins: "puzzle",
  session: "messages-square",
  skills: "book-open",
  storage: "save",
  teams: "users",
  tools: "wrench",
};

/** The keys whose name or documentation has the words. An item of a list or map opens with the list or map. */
function Matches({ query, close }: { query: string; close: () => void }) {
  const found = useMethod("config.find", { query, limit: 12 });
  const open = (key: string) => {
    close();
    go("config", key.replace(/(\[\]|\.?<).*$/, ""));
  };
  return (
    <Loaded from={found}>
      {({ keys }) =>
        keys.length ? (
          <ul class="rows matches" aria-label="Settings found">
            {keys.map(({ key, documentation }) => (
              <li key={key}>
                <div class="row-text">
                  <button type="button" class="link mono" onClick={() => open(key)}>
                    {key}
                  </button>
                  <p class="faint clipped">{withCode(documentation)}</p>
                </div>
              </li>
            ))}
          </ul>
        ) : (
          <p class="faint">No setting has these words.</p>
        )
      }
    </Loaded>
  );
}

function Crumbs({ path }: { path: string }) {
  const parts = path.split(".");
  return (
    <h2 class="crumbs">
      {parts.map((part, place) => (
        <span key={place}>
          {place > 0 && <Icon name="chevron-right" size={14} />}
          {place < parts.length - 1 ? (
            <button type="button" class="link" onClick={() => go("config", parts.slice(0, place + 1).join("."))}>
              {place ? humanize(part) : (SECTIONS[part] ?? humanize(part))}
            </button>
          ) : place ? (
            humanize(part)
          ) : (
            (SECTIONS[part] ?? humanize(part))
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
        <span class="row-text">
          <b>{humanize(path.split(".").at(-1)!)}</b>
          <span class="faint">{withCode(facts.data.documentation || plain(facts.data.keys))}</span>
        </span>
        <Icon name="chevron-right" />
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
  const name = humanize(facts.key.split(".").at(-1)!);
  const isDefault = facts.origin === "default";
  return (
    <div class={`config-key ${isChanged ? "is-changed" : ""}`}>
      <Control name={name} facts={facts} value={value} set={(fresh) => set(facts.key, fresh)} />
      <p class="config-about">{withCode(facts.documentation)}</p>
      <p class="row wrap faint">
        <code>{facts.key}</code>
        <span title={facts.origin}>
          <Badge tone={isDefault ? "plain" : "accent"}>{isDefault ? "default" : facts.origin.split("/").at(-1) || "unknown"}</Badge>
        </span>
        {!facts.allowed.length && <span>{facts.type}</span>}
        {(!isDefault || isChanged) && <span>default {show(facts.default)}</span>}
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

const MAX_ROWS = 16;

/** Objects and lists of objects over several lines, everything else on one. */
function pretty(value: unknown): string {
  const isNested = value !== null && typeof value === "object" && Object.values(value).some((each) => typeof each === "object");
  return JSON.stringify(value, null, isNested || (typeof value === "object" && !Array.isArray(value)) ? 2 : 0);
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
  const written = text ?? (value === null || value === undefined ? "" : isText ? String(value) : pretty(value));
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
  const lines = /^[[{]/.test(written) ? Math.min(MAX_ROWS, written.split("\n").length + 1) : undefined;
  return <Field label={name} value={written} onInput={typed} problem={problem} mono={!isText} {...(lines && { rows: lines })} />;
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
      toast(`${plural(list.length, "setting")} saved.`, undefined, "save");
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
