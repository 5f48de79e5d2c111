// What runs at this moment, in one live list: turns, jobs, sub-agents and commands, with a way to stop each.
import { useEffect } from "preact/hooks";
import { call, may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { go } from "../core/router";
import { agentOf, nameOfSession } from "../core/stores";
import { duration, now } from "../core/time";
import type { RunningWork } from "../generated/wire";
import type { IconName } from "../generated/icons";
import { Badge, short } from "../parts/bits";
import { Button } from "../parts/button";
import { Icon } from "../parts/icon";
import { EmptyState } from "../parts/states";
import { Loaded, View } from "../parts/view";

const EVERY_MS = 2_000;
const KINDS: Record<RunningWork["kind"], readonly [IconName, string]> = {
  turn: ["message-square", "turn"],
  job: ["calendar-clock", "job"],
  subagent: ["git-fork", "sub-agent"],
  command: ["terminal", "command"],
};
const STATES: Record<RunningWork["state"], string> = {
  working: "",
  queued: "waits for a free place",
  waiting: "waits for your decision",
};

export default function RunningView() {
  const running = useMethod("running.list", {}, ["sessions.changed", "approvals.changed"]);
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") void running.reload();
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <View title="Running" about="What agents do at this moment.">
      <Loaded from={running}>
        {({ work }) =>
          work.length ? (
            <ul class="rows" aria-label="Running work">
              {work.map((each) => (
                <WorkRow key={`${each.kind} ${each.id}`} work={each} reload={running.reload} />
              ))}
            </ul>
          ) : (
            <EmptyState icon="activity" title="Nothing runs">
              Turns, jobs, sub-agents and commands in the background appear here while they work.
            </EmptyState>
          )
        }
      </Loaded>
    </View>
  );
}

function WorkRow({ work, reload }: { work: RunningWork; reload: () => Promise<void> }) {
  const [icon, kind] = KINDS[work.kind];
  const isCommand = work.kind === "command";
  const stop = () => call("running.stop", { kind: work.kind, id: work.id }).then(reload);
  const title = work.title || nameOfSession(work.sessionKey);
  return (
    <li>
      <span class="row-icon pulsing">
        <Icon name={icon} size={18} />
      </span>
      <div class="row-text">
        <p class={isCommand ? "mono one-line" : "one-line"}>
          <bdi>{title}</bdi>
        </p>
        <p class="faint">
          {agentOf(work.agent)?.name ?? work.agent} ·{" "}
          <button type="button" class="link" onClick={() => go("chat", work.sessionKey)}>
            <bdi>{nameOfSession(work.sessionKey)}</bdi>
          </button>
          {work.tokens > 0 && ` · ${short(work.tokens)} tokens so far`}
        </p>
      </div>
      {STATES[work.state] && <Badge tone={work.state === "waiting" ? "warn" : "plain"}>{STATES[work.state]}</Badge>}
      <Badge tone="accent">{kind}</Badge>
      {work.startedAt && <Elapsed since={work.startedAt} />}
      {may("write") && (
        <Button kind="danger-quiet" icon="square" onClick={stop} title={`Stop this ${kind}`}>
          Stop
        </Button>
      )}
    </li>
  );
}

/** How long something has run; drawn again with each reading of the list. */
function Elapsed({ since }: { since: string }) {
  now.value;
  return <span class="time">{duration(Math.max(0, (Date.now() - new Date(since).getTime()) / 1_000))}</span>;
}
