// The chat services through which messages arrive, and the people who ask for access through them.
import { useState } from "preact/hooks";
import { attempting, call, may } from "../core/gateway";
import { useMethod } from "../core/resource";
import { addressOf } from "../core/router";
import { changeSettings } from "../core/settings";
import { plural, reveal, shorten } from "../core/text";
import type { AccountChecked, ChannelRow, ContactRow } from "../generated/wire";
import { Badge, Time, type Tone } from "../parts/bits";
import { Button } from "../parts/button";
import { Toggle } from "../parts/field";
import { Icon } from "../parts/icon";
import { EmptyState } from "../parts/states";
import { Loaded, View } from "../parts/view";

export default function ChannelsView() {
  const channels = useMethod("channels.list", may("admin") ? {} : null, ["config.changed"]);
  return (
    <View title="Channels" about="Chat services whose messages reach your agents." needs="admin">
      <Loaded from={channels}>
        {({ channels: all, contacts }) => (
          <>
            <Contacts contacts={contacts} reload={channels.reload} />
            {all.length ? (
              <ul class="rows" aria-label="Channels">
                {all.map((each) => (
                  <AccountRow key={`${each.channel} ${each.account}`} row={each} />
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
                The terminal and this page always work. A channel lets you write to an agent from a chat service:{" "}
                <code>retinue channels add telegram</code>
              </EmptyState>
            )}
          </>
        )}
      </Loaded>
    </View>
  );
}

function stateOf({ enabled, listening, state }: ChannelRow): readonly [Tone, string] {
  if (!enabled) return ["plain", "off"];
  if (state === "failed") return ["danger", "failed"];
  return listening || state === "connected" ? ["ok", state || "listening"] : ["plain", state || "ready"];
}

function AccountRow({ row }: { row: ChannelRow }) {
  const [checked, setChecked] = useState<AccountChecked | null>(null);
  const [tone, says] = stateOf(row);
  const key = row.account === "default" ? `channels.${row.channel}` : `channels.${row.channel}.accounts.${row.account}`;
  const turn = (enabled: boolean) => void attempting(() => changeSettings({ [`${key}.enabled`]: enabled }));
  const check = async () => setChecked(await call("channels.check", { channel: row.channel, account: row.account }));
  return (
    <li>
      <span class="row-icon">
        <Icon name="smartphone" size={18} />
      </span>
      <div class="row-text">
        <p class="row wrap">
          <b class="capitalized">{row.channel}</b>
          {row.account !== "default" && <bdi>{row.account}</bdi>}
          <Badge tone={tone}>{says}</Badge>
        </p>
        <p class="faint">
          {row.reason || (row.heardAt ? "" : "No message arrived yet")}
          {row.heardAt && (
            <>
              last message <Time when={row.heardAt} />
            </>
          )}
          {row.waiting > 0 && ` · ${plural(row.waiting, "message")} wait to be sent`}
        </p>
        {checked && (
          <p class={checked.problem ? "problem" : "faint"} role="status">
            {checked.problem || `It works: ${shorten(checked.name, 80)} ${shorten(checked.address, 120)}`}
          </p>
        )}
      </div>
      <span class="row-actions">
        {row.enabled && <Button onClick={check}>Check</Button>}
        <a class="button" href={addressOf("config", key)}>
          Settings
        </a>
        {row.channel !== "http" && <Toggle label={`${row.channel} ${row.account} on`} hideLabel checked={row.enabled} onChange={turn} />}
      </span>
    </li>
  );
}

function Contacts({ contacts, reload }: { contacts: readonly ContactRow[]; reload: () => Promise<void> }) {
  if (!contacts.length) return null;
  const ordered = [...contacts].sort((a, b) => Number(b.state === "waiting") - Number(a.state === "waiting"));
  return (
    <section class="stack" aria-label="People">
      <h2>People who asked for access</h2>
      <ul class="rows">
        {ordered.map((each) => (
          <ContactItem key={each.address} contact={each} reload={reload} />
        ))}
      </ul>
    </section>
  );
}

function ContactItem({ contact, reload }: { contact: ContactRow; reload: () => Promise<void> }) {
  const decide = (approve: boolean) => () => call("channels.decide", { code: contact.code, approve }).then(reload);
  return (
    <li>
      <span class="row-icon">
        <Icon name="user" size={18} />
      </span>
      <div class="row-text">
        <p class="row wrap">
          <b>{reveal(shorten(contact.name || contact.address, 80))}</b>
          {contact.state !== "waiting" && <Badge tone={contact.state === "approved" ? "ok" : "plain"}>{contact.state}</Badge>}
        </p>
        <p class="faint">
          <bdi>{contact.address}</bdi> · <Time when={contact.askedAt} />
          {contact.state === "waiting" && (
            <>
              {" "}
              · the code on their screen: <code>{contact.code}</code>
            </>
          )}
        </p>
      </div>
      {contact.state === "waiting" && (
        <span class="row-actions">
          <Button kind="primary" onClick={decide(true)}>
            Approve
          </Button>
          <Button kind="danger-quiet" onClick={decide(false)}>
            Reject
          </Button>
        </span>
      )}
    </li>
  );
}
