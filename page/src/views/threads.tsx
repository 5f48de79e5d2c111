// All threads, with those of the background folded under what started them.
import { useState } from "preact/hooks";
import { go } from "../core/router";
import { loadSessions, sessions, sessionName, placeOf, agentOf } from "../core/stores";
import { attempting } from "../core/gateway";
import { threadMenu } from "../core/thread_actions";
import type { SessionRow } from "../generated/wire";
import { Badge, short, Time } from "../parts/bits";
import { SearchField } from "../parts/field";
import { Icon } from "../parts/icon";
import { Menu } from "../parts/menu";
import { EmptyState, Skeleton } from "../parts/states";
import { View } from "../parts/view";
import { IconButton } from "../parts/button";

export default function ThreadsView() {
  const [wanted, setWanted] = useState("");
  const rows = sessions.value;
  const fits = (row: SessionRow) => sessionName(row).toLowerCase().includes(wanted.trim().toLowerCase());
  const found = rows?.filter(fits) ?? [];
  return (
    <View
      title="Threads"
      about="Every conversation, also those of jobs, heartbeats and sub-agents."
      actions={<IconButton icon="refresh-cw" label="Read again" onClick={() => void attempting(loadSessions)} />}
    >
      <SearchField label="Filter threads" value={wanted} onInput={setWanted} />
      {!rows && <Skeleton />}
      {rows && !found.length && <EmptyState icon="messages-square" title="No thread fits" />}
      {found.length > 0 && (
        <table class="table">
          <thead>
            <tr>
              <th>Thread</th>
              <th>Kind</th>
              <th class="number">Messages</th>
              <th class="number">Tokens</th>
              <th>Last used</th>
              <th>
                <span class="unseen">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {found.map((row) => (
              <tr key={row.key}>
                <td>
                  <button type="button" class="link" onClick={() => go("chat", row.key)}>
                    <bdi>{sessionName(row)}</bdi>
                  </button>
                  {row.running && <Badge tone="accent">answering</Badge>}
                </td>
                <td>
                  {placeOf(row.key).kind} <span class="faint">{agentOf(row.agent)?.name ?? row.agent}</span>
                </td>
                <td class="number">{row.messages}</td>
                <td class="number">{short(row.contextTokens)}</td>
                <td>
                  <Time when={row.updatedAt} />
                </td>
                <td>
                  <Menu label={`Actions of ${sessionName(row)}`} items={() => threadMenu(row)}>
                    <Icon name="ellipsis" />
                  </Menu>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </View>
  );
}
