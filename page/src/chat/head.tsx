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

const EFFORTS = ["off", "minimal", "low", "medium", "high", "xhigh"] as const;
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
        {row && (
          <Menu label="Actions of this conversation" items={() => threadMenu(row)}>
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
  const { verbose, thinking } = thread.introduction.value;
  const items = (): MenuItem[] => [
    ...(models?.models ?? []).slice(0, 24).map((each) => ({
      text: each.ref,
      hint: `${short(each.window)} tokens${each.reasoning ? ", thinks" : ""}`,
      isChosen: each.ref === model,
      act: () => void thread.patch({ model: each.ref }),
    })),
    { text: "The agent's default model", isChosen: false, act: () => void thread.patch({ model: null }) },
    ...EFFORTS.map((effort) => ({
      text: `Thinking: ${effort}`,
      isChosen: thinking === effort,
      act: () => void thread.patch({ thinking: effort }),
    })),
    ...VERBOSE.map(([value, text]) => ({
      text,
      isChosen: verbose === value,
      act: () => void thread.patch({ verbose: value }),
    })),
    {
      text: "Summarise older messages",
      icon: "layers" as const,
      act: () =>
        void attempting(async () => {
          const { text } = await call("sessions.compact", { sessionKey: thread.key.value });
          thread.conversation.note(text);
        }),
    },
  ];
  const name = model?.split("/").at(-1) ?? "No model";
  const shown = (
    <>
      <span id="model">{name}</span>
      <Icon name="chevron-down" size={14} />
    </>
  );
  if (!mayChange) return <span id="model">{model ?? ""}</span>;
  return (
    <Menu label={`${name}: model and display of this conversation`} class="model-button" items={items}>
      {shown}
    </Menu>
  );
}
