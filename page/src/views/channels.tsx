// The chat services through which messages arrive.
import { may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { addressOf } from "../core/router";
import { Badge } from "../parts/bits";
import { Icon } from "../parts/icon";
import { EmptyState } from "../parts/states";
import { Loaded, View } from "../parts/view";

export default function ChannelsView() {
  const channels = useMethod("channels.list", may("admin") ? {} : null, ["config.changed"]);
  return (
    <View title="Channels" about="Chat services whose messages reach your agents." needs="admin">
      <Loaded from={channels}>
        {({ channels: all }) =>
          all.length ? (
            <ul class="rows" aria-label="Channels">
              {all.map(({ channel, account, enabled, listening, reason }) => (
                <li key={`${channel} ${account}`}>
                  <Icon name="smartphone" />
                  <div class="row-text">
                    <bdi>
                      {channel} · {account}
                    </bdi>
                    {reason && <p class="faint">{reason}</p>}
                  </div>
                  <Badge tone={listening ? "ok" : enabled ? "plain" : "warn"}>
                    {listening ? "listening" : enabled ? "ready" : "off"}
                  </Badge>
                  <a class="button" href={addressOf("config", `channels.${channel}`)}>
                    Settings
                  </a>
                </li>
              ))}
            </ul>
          ) : (
            <EmptyState
              icon="smartphone"
              title="No channel is set up"
              action={
                <a class="button" href={addressOf("config", "channels")}>
                  Open the settings
                </a>
              }
            >
              The terminal and this page always work. A channel lets you write to an agent from a chat service.
            </EmptyState>
          )
        }
      </Loaded>
    </View>
  );
}
