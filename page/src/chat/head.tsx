// The line above the conversation: what it is called, and what the session uses.
import { attempting, call, may } from "../core/gateway";
import { addressOf } from "../core/router";
import { nameOfSession, sessions, sessionName } from "../core/stores";
import type { SessionRow } from "../generated/wire";
import { Meter, short } from "../parts/bits";
import { Menu, type MenuItem } from "../parts/menu";
import { Icon } from "../parts/icon";
import { useMethod } from "../core/resource";
import { threadMenu } from "../core/thread_actions";
import { thread } from "./thread";

const MAX_MODELS = 24;
const EFFORTS = [
  ["off", "Off"],
  ["minimal", "Minimal"],
  ["low", "Low"],
  ["medium", "Medium"],
  ["high", "High"],
  ["xhigh", "Very high"],
] as const;
const VERBOSE = [
  ["off", "Answers alone"],
  ["on", "With tool calls"],
  ["full", "With results of tools"],
] as const;

export function ChatHead() {
  const key = thread.key.value ?? "";
  const row = sessions.value?.find((each) => each.key === key);
  const { model, window: size, used } = thread.introduction.value;
  return (
    <header class="chat-head">
      <h1 class="chat-title">
        <bdi>{key ? sessionName(row ?? { key }) : "Retinue"}</bdi>
      </h1>
      {row && (row.spawnedBy ?? row.forkedFrom) && <CameFrom row={row} />}
      <div class="chat-tools">
        {size > 0 && used > 0 && (
          <a class="context-link" href={addressOf("prompt", key)} title="Open the prompt inspector">
            <Meter label="Context" value={used} max={size} text={`${short(used)} of ${short(size)} tokens`} />
          </a>
        )}
        <ModelMenu model={model} mayChange={may("write")} />
        <ThinkingMenu mayChange={may("write")} />
        {row && (
          <Menu label="Actions of this conversation" items={() => moreActions(row)}>
            <Icon name="ellipsis" size={18} />
          </Menu>
        )}
      </div>
    </header>
  );
}

/** The thread for which a sub-agent works, or of which this is a branch. */
function CameFrom({ row }: { row: SessionRow }) {
  const from = row.spawnedBy ?? row.forkedFrom ?? "";
  return (
    <a class="came-from" href={addressOf("chat", from)}>
      <Icon name={row.spawnedBy ? "users" : "git-fork"} size={14} />
      <span>
        {row.spawnedBy ? "works for " : "branch of "}
        <bdi>{nameOfSession(from)}</bdi>
      </span>
    </a>
  );
}

function ModelMenu({ model, mayChange }: { model: string | null; mayChange: boolean }) {
  const models = useMethod("models.list", { agent: thread.agentId.value }, ["config.changed"]).data;
  const items = (): MenuItem[] => [
    ...(models?.models ?? []).slice(0, MAX_MODELS).map((each, place) => ({
      ...(place === 0 && { heading: "Model of this conversation" }),
      text: each.ref,
      hint: `${short(each.window)} tokens${each.reasoning ? ", thinks" : ""}`,
      isChosen: each.ref === model,
      act: () => void thread.patch({ model: each.ref }),
    })),
    { text: "The agent's default model", icon: "rotate-ccw" as const, act: () => void thread.patch({ model: null }) },
  ];
  const name = model?.split("/").at(-1) ?? "No model";
  if (!mayChange) return <span id="model">{model ?? ""}</span>;
  return (
    <Menu label={`${name}: model of this conversation`} class="model-button" items={items}>
      <span id="model">{name}</span>
      <Icon name="chevron-down" size={14} />
    </Menu>
  );
}

function ThinkingMenu({ mayChange }: { mayChange: boolean }) {
  const { thinking } = thread.introduction.value;
  const level = thinking ?? "default";
  const items = (): MenuItem[] => [
    {
      heading: "How long the model thinks",
      text: "As the agent is set",
      isChosen: thinking === null,
      act: () => void thread.patch({ thinking: null }),
    },
    ...EFFORTS.map(([effort, text]) => ({
      text,
      isChosen: thinking === effort,
      act: () => void thread.patch({ thinking: effort }),
    })),
  ];
  if (!mayChange) return null;
  return (
    <Menu label={`Thinking: ${level}`} class="model-button thinking-button" items={items}>
      <Icon name="brain" size={15} />
      {thinking && <span>{thinking}</span>}
      <Icon name="chevron-down" size={14} />
    </Menu>
  );
}

/** How much of the work is shown, and what can be done with the conversation. */
function moreActions(row: SessionRow): MenuItem[] {
  const { verbose } = thread.introduction.value;
  const compact = async () => {
    const { text } = await call("sessions.compact", { sessionKey: thread.key.value });
    thread.conversation.note(text);
  };
  const display: MenuItem[] = VERBOSE.map(([value, text], place) => ({
    ...(place === 0 && { heading: "Chat services show" }),
    text,
    isChosen: verbose === value,
    act: () => void thread.patch({ verbose: value }),
  }));
  const [first, ...rest] = threadMenu(row);
  const conversation: MenuItem[] = [{ ...first!, heading: "This conversation" }, ...rest];
  if (!may("write")) return conversation;
  const summarise: MenuItem = { text: "Summarise older messages", icon: "layers", act: () => void attempting(compact) };
  return [...conversation.slice(0, 2), summarise, ...conversation.slice(2), ...display];
}
