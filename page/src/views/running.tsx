// What runs at this moment: turns and sub-agents, with a way to stop each.
import { attempting, call, may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { go } from "../core/router";
import { agentOf, loadSessions, sessions, sessionName } from "../core/stores";
import { shorten } from "../core/text";
import { Badge, short, Time } from "../parts/bits";
import { Button } from "../parts/button";
import { Icon } from "../parts/icon";
import { EmptyState } from "../parts/states";
import { Loaded, View } from "../parts/view";

const OVER = new Set(["done", "ok", "failed", "cancelled", "canceled", "timed_out", "lost", "finished", "error"]);

export default function RunningView() {
  const children = useMethod("subagents.list", {}, ["sessions.changed"]);
  const turns = (sessions.value ?? []).filter((row) => row.running);
  const stop = (act: () => Promise<unknown>) => attempting(() => act().then(loadSessions).then(children.reload));
  return (
    <View title="Running" about="What agents do at this moment.">
      <Loaded from={children}>
        {({ subagents }) => {
          const alive = (subagents as Record<string, any>[]).filter((child) => !OVER.has(stateOf(child)));
          if (!turns.length && !alive.length) {
            return (
              <EmptyState icon="activity" title="Nothing runs">
                Turns, sub-agents and jobs appear here while they work.
              </EmptyState>
            );
          }
          return (
            <ul class="rows" aria-label="Running work">
              {turns.map((row) => (
                <li key={row.key}>
                  <Icon name="message-square" />
                  <div class="row-text">
                    <button type="button" class="link" onClick={() => go("chat", row.key)}>
                      <bdi>{sessionName(row)}</bdi>
                    </button>
                    <p class="faint">
                      {agentOf(row.agent)?.name ?? row.agent} · {short(row.contextTokens)} tokens ·{" "}
                      <Time when={row.updatedAt} />
                    </p>
                  </div>
                  <Badge tone="accent">turn</Badge>
                  {may("write") && (
                    <Button kind="danger-quiet" onClick={() => stop(() => call("chat.abort", { sessionKey: row.key }))}>
                      Stop
                    </Button>
                  )}
                </li>
              ))}
              {alive.map((child) => (
                <li key={child.runId ?? child.id}>
                  <Icon name="git-fork" />
                  <div class="row-text">
                    <bdi>{shorten(child.label ?? child.task ?? "Sub-agent", 120)}</bdi>
                    <p class="faint">
                      {stateOf(child)} · <Time when={child.startedAt ?? child.createdAt} />
                    </p>
                  </div>
                  <Badge tone="accent">sub-agent</Badge>
                  {may("write") && (
                    <Button
                      kind="danger-quiet"
                      onClick={() => stop(() => call("subagents.cancel", { runId: child.runId ?? child.id }))}
                    >
                      Stop
                    </Button>
                  )}
                </li>
              ))}
            </ul>
          );
        }}
      </Loaded>
    </View>
  );
}

function stateOf(child: Record<string, any>): string {
  return String(child.status ?? child.state ?? "");
}
