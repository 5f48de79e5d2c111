// Paths that accept requests from outside, and programs that run at events.
import { attempting, call } from "../core/gateway";
import { openPanel } from "../core/panel";
import { useMethod } from "../core/resource";
import { addressOf } from "../core/router";
import { changeSettings } from "../core/settings";
import { agentOf } from "../core/stores";
import { reveal, withCode } from "../core/text";
import type { HookRow, WebhookRow } from "../generated/wire";
import { Badge, Time } from "../parts/bits";
import { Button } from "../parts/button";
import { CopyButton } from "../parts/code";
import { confirm } from "../parts/dialog";
import { Toggle } from "../parts/field";
import { Icon } from "../parts/icon";
import { EmptyState } from "../parts/states";
import { Loaded } from "../parts/view";

const ORIGINS: Record<WebhookRow["origin"], string> = {
  configuration: "of the configuration",
  preset: "preset",
  agent: "made by an agent",
};

export function Webhooks() {
  const found = useMethod("webhooks.list", {}, ["config.changed"]);
  return (
    <Loaded from={found}>
      {({ enabled, path, webhooks }) => (
        <>
          <p class="note">
            <Icon name={enabled ? "webhook" : "info"} />
            <span>
              {enabled ? (
                <>
                  Requests to <code>{path}/…</code> with the token become messages to an agent. Their text counts as text from
                  outside.
                </>
              ) : (
                <>
                  Webhooks are off, so every request is refused.{" "}
                  <a href={addressOf("config", "hooks")}>Set hooks.enabled and hooks.token</a> to serve them.
                </>
              )}
            </span>
          </p>
          {webhooks.length ? (
            <ul class="rows" aria-label="Webhooks">
              {webhooks.map((each) => (
                <WebhookItem key={`${each.origin} ${each.path}`} hook={each} reload={found.reload} />
              ))}
            </ul>
          ) : (
            <EmptyState icon="webhook" title="No webhooks">
              A webhook lets another program write to an agent. Ask an agent to make one, or add a mapping in the
              configuration.
            </EmptyState>
          )}
        </>
      )}
    </Loaded>
  );
}

function WebhookItem({ hook, reload }: { hook: WebhookRow; reload: () => Promise<void> }) {
  const renew = async () => {
    const isSure =
      !hook.ready || (await confirm(`Make a new token for “${hook.name}”?`, "The present token is no longer valid.", "Make it"));
    if (!isSure) return;
    const { token } = await call("webhooks.token", { name: hook.name });
    await reload();
    openPanel(`Token of ${hook.name}`, () => (
      <div class="stack">
        <p>It cannot be shown again. Give it to the program that sends the requests, as a bearer token.</p>
        <p class="row">
          <code class="secret">{token}</code> <CopyButton text={token} label="Copy the token" />
        </p>
      </div>
    ));
  };
  const revoke = async () => {
    if (await confirm(`Delete the webhook “${hook.name}”?`, "Its token is no longer valid.", "Delete it")) {
      await call("webhooks.revoke", { name: hook.name });
      await reload();
    }
  };
  return (
    <li>
      <span class="row-icon">
        <Icon name="webhook" size={18} />
      </span>
      <div class="row-text">
        <p class="row wrap">
          <b>
            <bdi>{hook.name}</bdi>
          </b>
          <code>{hook.path}</code>
        </p>
        <p class="faint">
          {ORIGINS[hook.origin]}
          {hook.agent && ` · to ${agentOf(hook.agent)?.name ?? hook.agent}`}
          {hook.usedAt && (
            <>
              {" "}
              · used <Time when={hook.usedAt} />
            </>
          )}
        </p>
        {hook.template && <p class="faint one-line">{reveal(hook.template)}</p>}
        {hook.reason && <p class="skill-reason">{withCode(hook.reason)}</p>}
      </div>
      <Badge tone={hook.ready ? "ok" : "warn"}>{hook.ready ? "ready" : "refuses"}</Badge>
      {hook.origin === "agent" && (
        <span class="row-actions">
          <Button icon="key-round" onClick={renew}>
            {hook.ready ? "New token" : "Make its token"}
          </Button>
          <Button kind="danger-quiet" onClick={revoke}>
            Delete
          </Button>
        </span>
      )}
    </li>
  );
}

export function HookFolders() {
  const found = useMethod("hooks.list", {}, ["config.changed"]);
  return (
    <Loaded from={found}>
      {({ hooks }) =>
        hooks.length ? (
          <ul class="rows" aria-label="Hooks">
            {hooks.map((each) => (
              <HookItem key={each.folder} hook={each} />
            ))}
          </ul>
        ) : (
          <EmptyState icon="zap" title="No hooks">
            A hook is a folder with a <code>HOOK.md</code> and a program that runs when something happens, such as the start
            of a session.
          </EmptyState>
        )
      }
    </Loaded>
  );
}

function HookItem({ hook }: { hook: HookRow }) {
  const turn = (enabled: boolean) =>
    void attempting(() => changeSettings({ [`hooks.internal.entries.${hook.name}.enabled`]: enabled }));
  return (
    <li>
      <span class="row-icon">
        <Icon name="zap" size={18} />
      </span>
      <div class="row-text">
        <p class="row wrap">
          <b>
            <bdi>{hook.name}</bdi>
          </b>
          <Badge>{hook.origin}</Badge>
        </p>
        <p class="faint">{reveal(hook.description)}</p>
        <p class="faint">
          at {hook.events.map((event, place) => (
            <span key={event}>
              {place > 0 && ", "}
              <code>{event}</code>
            </span>
          ))}
        </p>
        {hook.enabled && hook.problems.map((problem) => (
          <p key={problem} class="skill-reason">
            {withCode(problem)}
          </p>
        ))}
      </div>
      <Toggle label={`${hook.name} on`} hideLabel checked={hook.enabled} onChange={turn} />
    </li>
  );
}
