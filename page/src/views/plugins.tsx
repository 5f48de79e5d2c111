// Plugins and MCP servers: their state, the reason for it, and what can be done about it.
import { attempting, call, may } from "../core/gateway";
import { openPanel } from "../core/panel";
import { useMethod } from "../core/resource";
import { addressOf, tabOf } from "../core/router";
import { changeSettings } from "../core/settings";
import { plural, reveal, shorten, withCode } from "../core/text";
import type { McpServerRow, McpTrial, PluginRow } from "../generated/wire";
import { Badge, Tabs, type Tone } from "../parts/bits";
import { Button } from "../parts/button";
import { Toggle } from "../parts/field";
import { Icon } from "../parts/icon";
import { EmptyState, ErrorCard } from "../parts/states";
import { Loaded, View } from "../parts/view";

const TABS = [
  ["plugins", "Plugins"],
  ["mcp", "MCP servers"],
] as const;
const TONES: Record<string, Tone> = { loaded: "ok", enabled: "ok", active: "ok", failed: "danger", disabled: "plain" };

export default function PluginsView() {
  const [tab, setTab] = tabOf("plugins", TABS);
  return (
    <View title="Plugins and MCP" about="What adds tools, models and channels." needs="admin">
      <Tabs label="Kind" tabs={TABS} current={tab} onChange={setTab} />
      {tab === "plugins" ? <Plugins /> : <Servers />}
    </View>
  );
}

function Plugins() {
  const plugins = useMethod("plugins.list", may("admin") ? {} : null, ["config.changed"]);
  return (
    <Loaded from={plugins}>
      {({ plugins: all }) =>
        all.length ? (
          <ul class="rows" aria-label="Plugins">
            {all.map((plugin) => (
              <PluginItem key={plugin.id} plugin={plugin} />
            ))}
          </ul>
        ) : (
          <EmptyState icon="puzzle" title="No plugins are installed">
            <code>retinue plugins install</code> installs a folder, an archive or a Python package. A plugin runs with all your
            rights, so install only what you trust.
          </EmptyState>
        )
      }
    </Loaded>
  );
}

function PluginItem({ plugin }: { plugin: PluginRow }) {
  const isOn = plugin.state !== "disabled";
  const turn = (enabled: boolean) => void attempting(() => changeSettings({ [`plugins.entries.${plugin.id}.enabled`]: enabled }));
  return (
    <li>
      <span class="row-icon">
        <Icon name="puzzle" size={18} />
      </span>
      <div class="row-text">
        <p class="row wrap">
          <b>
            <bdi>{plugin.id}</bdi>
          </b>
          <span class="faint">{plugin.version}</span>
          <Badge tone={TONES[plugin.state] ?? "warn"}>{plugin.state}</Badge>
        </p>
        <p class="faint">{reveal(shorten(plugin.description, 200))}</p>
        {plugin.reason && <p class={plugin.state === "failed" ? "problem" : "faint"}>{withCode(plugin.reason)}</p>}
        {plugin.registers.length > 0 && (
          <p class="faint">
            Adds{" "}
            {plugin.registers.map((each) => (
              <span key={each} class="tag">
                {each}
              </span>
            ))}
          </p>
        )}
      </div>
      <span class="row-actions">
        <a class="button" href={addressOf("config", `plugins.entries.${plugin.id}`)}>
          Settings
        </a>
        <Toggle label={`${plugin.id} on`} hideLabel checked={isOn} onChange={turn} />
      </span>
    </li>
  );
}

function Servers() {
  const servers = useMethod("mcp.list", may("admin") ? {} : null, ["config.changed"]);
  return (
    <Loaded from={servers}>
      {({ servers: all }) =>
        all.length ? (
          <ul class="rows" aria-label="MCP servers">
            {all.map((server) => (
              <ServerItem key={server.name} server={server} />
            ))}
          </ul>
        ) : (
          <EmptyState icon="plug" title="No MCP servers">
            <code>retinue mcp add</code> adds one; agents then call its tools.
          </EmptyState>
        )
      }
    </Loaded>
  );
}

function ServerItem({ server }: { server: McpServerRow }) {
  const turn = (enabled: boolean) => void attempting(() => changeSettings({ [`mcp.servers.${server.name}.enabled`]: enabled }));
  const test = async () => {
    const trial = await call("mcp.test", { server: server.name });
    openPanel(`MCP server ${server.name}`, () => <Trial trial={trial} />);
  };
  return (
    <li>
      <span class="row-icon">
        <Icon name="plug" size={18} />
      </span>
      <div class="row-text">
        <p class="row wrap">
          <b>
            <bdi>{server.name}</bdi>
          </b>
          <Badge tone={server.enabled ? "ok" : "plain"}>{server.enabled ? "enabled" : "off"}</Badge>
        </p>
        <p class="faint one-line">
          {server.transport} · <bdi class="mono">{shorten(server.target, 120)}</bdi>
        </p>
      </div>
      <span class="row-actions">
        <Button onClick={test} title="Connect to it and list its tools">
          Test
        </Button>
        <a class="button" href={addressOf("config", `mcp.servers.${server.name}`)}>
          Settings
        </a>
        <Toggle label={`${server.name} on`} hideLabel checked={server.enabled} onChange={turn} />
      </span>
    </li>
  );
}

/** What a server offers; its descriptions come from outside. */
function Trial({ trial }: { trial: McpTrial }) {
  return (
    <div class="stack">
      {trial.problem && <ErrorCard problem={trial.problem} />}
      {trial.printed && (
        <pre class="wrapped" tabindex={0} role="group" aria-label="What its program printed">
          {reveal(trial.printed)}
        </pre>
      )}
      {!trial.problem && <p class="faint">It works and offers {plural(trial.tools.length, "tool")}.</p>}
      <ul class="plain-list">
        {trial.tools.map((tool) => (
          <li key={tool.name}>
            <code>{reveal(tool.name)}</code>
            <p class="faint">{reveal(shorten(tool.description, 300))}</p>
          </li>
        ))}
      </ul>
    </div>
  );
}
