// Plugins and MCP servers: their state and the reason for it.
import { useState } from "preact/hooks";
import { may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { addressOf } from "../core/router";
import { shorten } from "../core/text";
import { Badge, Tabs, type Tone } from "../parts/bits";
import { Icon } from "../parts/icon";
import { EmptyState } from "../parts/states";
import { Loaded, View } from "../parts/view";

const TABS = [
  ["plugins", "Plugins"],
  ["mcp", "MCP servers"],
] as const;
const TONES: Record<string, Tone> = { loaded: "ok", enabled: "ok", active: "ok", failed: "danger", disabled: "plain" };

export default function PluginsView() {
  const [tab, setTab] = useState("plugins");
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
              <li key={plugin.id}>
                <Icon name="puzzle" />
                <div class="row-text">
                  <b>
                    <bdi>{plugin.id}</bdi>
                  </b>{" "}
                  <span class="faint">{plugin.version}</span>
                  <p class="faint">{shorten(plugin.description, 200)}</p>
                  {plugin.reason && <p class="faint">{plugin.reason}</p>}
                  {plugin.registers.length > 0 && <p class="faint">Adds {plugin.registers.join(", ")}</p>}
                </div>
                <Badge tone={TONES[plugin.state] ?? "warn"}>{plugin.state}</Badge>
              </li>
            ))}
          </ul>
        ) : (
          <EmptyState icon="puzzle" title="No plugins are installed">
            A plugin is a Python package or a folder in <code>plugins/</code> of the home. It runs with all your rights.
          </EmptyState>
        )
      }
    </Loaded>
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
              <li key={server.name}>
                <Icon name="plug" />
                <div class="row-text">
                  <b>
                    <bdi>{server.name}</bdi>
                  </b>
                  <p class="faint">
                    {server.transport} · <bdi>{shorten(server.target, 120)}</bdi>
                  </p>
                </div>
                <Badge tone={server.enabled ? "ok" : "plain"}>{server.enabled ? "enabled" : "off"}</Badge>
                <a class="button" href={addressOf("config", `mcp.servers.${server.name}`)}>
                  Settings
                </a>
              </li>
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
