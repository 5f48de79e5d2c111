// Pairing requests and paired devices. A device chooses its own name and platform, so they are not trusted; the code
// shows which screen a request belongs to.
import { useState } from "preact/hooks";
import { attempting, call, may, scopes } from "../core/gateway";
import { devices, loadDevices, ownToken } from "../core/stores";
import { shorten } from "../core/text";
import { clockTime } from "../core/time";
import type { PairedDevice, Scope, WaitingDevice } from "../generated/wire";
import { Badge, Time } from "../parts/bits";
import { Button, IconButton } from "../parts/button";
import { confirm } from "../parts/dialog";
import { Select } from "../parts/field";
import { Icon } from "../parts/icon";
import { EmptyState } from "../parts/states";
import { View } from "../parts/view";

const RIGHTS: readonly (readonly [string, readonly Scope[]])[] = [
  ["May read and write", ["read", "write"]],
  ["May only read", ["read"]],
  ["May do everything", ["admin"]],
];

export default function DevicesView() {
  const { waiting, paired } = devices.value;
  return (
    <View
      title="Devices"
      about="Browsers and other clients that may use this gateway."
      needs="pair"
      actions={<IconButton icon="refresh-cw" label="Read again" onClick={() => void attempting(loadDevices)} />}
    >
      {waiting.length > 0 && (
        <ul class="card-list" aria-label="Devices that request access">
          {waiting.map((device) => (
            <WaitingCard key={device.id} device={device} />
          ))}
        </ul>
      )}
      {paired.length ? (
        <ul id="paired-devices" class="rows" aria-label="Paired devices">
          {paired.map((device) => (
            <PairedRow key={device.id} device={device} />
          ))}
        </ul>
      ) : (
        <EmptyState icon="monitor-smartphone" title="No paired devices">
          Open the page on another device and choose “Request access”, or print a code with{" "}
          <code>retinue gateway pair</code>.
        </EmptyState>
      )}
    </View>
  );
}

function WaitingCard({ device }: { device: WaitingDevice }) {
  const offered = RIGHTS.filter(([, wanted]) => wanted.every((scope) => scopes.value.includes(scope)));
  const [choice, setChoice] = useState("0");
  const facts = [device.platform, device.address, `until ${clockTime(device.expiresAt)}`].filter(Boolean).join(" · ");
  const id = `code-${device.id}`;
  return (
    <li class="card device" role="group" aria-labelledby={id}>
      <p>A device requests access. Its screen must show:</p>
      <p class="device-code" id={id}>
        {device.code}
      </p>
      <p class="faint">
        <bdi>{shorten(device.name, 80)}</bdi> · {shorten(facts, 120)}
      </p>
      <Select
        label="What the device may do"
        value={choice}
        options={offered.map(([text], place) => [String(place), text] as const)}
        onChange={setChoice}
      />
      <div class="row">
        <Button
          kind="primary"
          onClick={() =>
            call("devices.approve", { code: device.id, scopes: [...offered[Number(choice)]![1]] }).then(loadDevices)
          }
        >
          Approve
        </Button>
        <Button onClick={() => call("devices.reject", { code: device.id }).then(loadDevices)}>Reject</Button>
      </div>
    </li>
  );
}

function PairedRow({ device }: { device: PairedDevice }) {
  const given = RIGHTS.find(([, wanted]) => wanted.join() === device.scopes.join());
  const rights = given ? given[0].toLowerCase() : `may ${device.scopes.join(", ")}`;
  const isOwn = device.id === ownToken.value;
  const name = shorten(device.name, 80);
  const revoke = async () => {
    if (await confirm(`Revoke “${name}”?`, "It is signed out at once.", "Revoke it")) {
      await attempting(() => call("devices.revoke", { id: device.id }).then(loadDevices));
    }
  };
  return (
    <li>
      <Icon name="monitor-smartphone" />
      <div class="row-text">
        <bdi>{name}</bdi> {isOwn && <Badge tone="accent">this device</Badge>}
        <p class="faint">
          {rights} · {device.usedAt ? "used " : "not used yet"}
          {device.usedAt && <Time when={device.usedAt} />}
        </p>
      </div>
      {may("admin") && !isOwn && (
        <Button kind="danger-quiet" onClick={revoke}>
          Revoke
        </Button>
      )}
    </li>
  );
}
