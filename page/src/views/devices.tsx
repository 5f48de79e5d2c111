// Pairing requests and paired devices. A device chooses its own name and platform, so they are not trusted; the code
// shows which screen a request belongs to.
import { useState } from "preact/hooks";
import { attempting, call, knows, may, scopes } from "../core/gateway";
import { openPanel } from "../core/panel";
import { addressOf } from "../core/router";
import { devices, loadDevices, ownToken } from "../core/stores";
import { shorten } from "../core/text";
import { clockTime } from "../core/time";
import type { Invitation, PairedDevice, Scope, WaitingDevice } from "../generated/wire";
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

/** The rights that this device has itself, and so can give. */
function offeredRights() {
  return RIGHTS.filter(([, wanted]) => wanted.every((scope) => scopes.value.includes(scope)));
}

export default function DevicesView() {
  const { waiting, paired } = devices.value;
  return (
    <View
      title="Devices"
      about="Browsers and other clients that may use this gateway."
      needs="pair"
      actions={
        <>
          <IconButton icon="refresh-cw" label="Read again" onClick={() => void attempting(loadDevices)} />
          {knows("devices.invite") && (
            <Button kind="primary" icon="plus" onClick={() => openPanel("Add a device", () => <Invite />)}>
              Add a device
            </Button>
          )}
        </>
      }
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
          “Add a device” makes a code for a phone or another browser. A device can also open this page and choose “Request
          access”.
        </EmptyState>
      )}
    </View>
  );
}

/** A code for one device, with a QR code if other devices can reach the gateway. */
function Invite() {
  const offered = offeredRights();
  const [choice, setChoice] = useState("0");
  const [made, setMade] = useState<Invitation | null>(null);
  const make = async () => setMade(await call("devices.invite", { scopes: [...offered[Number(choice)]![1]] }));
  if (!made) {
    return (
      <div class="stack">
        <p>The code pairs one device, once, within ten minutes. The device keeps these rights until you revoke it.</p>
        <Select
          label="What the device may do"
          value={choice}
          options={offered.map(([text], place) => [String(place), text] as const)}
          onChange={setChoice}
        />
        <div>
          <Button kind="primary" icon="key-round" onClick={make}>
            Make a code
          </Button>
        </div>
      </div>
    );
  }
  return (
    <div class="stack invite">
      {made.qr.length > 0 ? (
        <>
          <p>Scan it with the camera of the phone:</p>
          <QrCode rows={made.qr} />
        </>
      ) : (
        <p class="note">
          <Icon name="info" />
          <span>
            Only this machine can open the address below. For a phone, set{" "}
            <a href={addressOf("config", "gateway.bind")}>gateway.bind</a> to <code>lan</code> and restart the gateway.
          </span>
        </p>
      )}
      <p>Or open the address on the device and enter the code:</p>
      <p class="device-code">{made.code}</p>
      <p>
        <code>{made.address}</code>
      </p>
      <p class="faint">It can be used once, until {clockTime(made.expiresAt)}.</p>
    </div>
  );
}

/** Dark modules on a light ground in both themes, as cameras expect it. */
function QrCode({ rows }: { rows: readonly string[] }) {
  const size = rows.length;
  const path = rows.flatMap((row, y) => [...row].map((cell, x) => (cell === "1" ? `M${x} ${y}h1v1h-1z` : "")));
  return (
    <svg class="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label="QR code of the address with the code">
      <path d={path.join("")} />
    </svg>
  );
}

function WaitingCard({ device }: { device: WaitingDevice }) {
  const offered = offeredRights();
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
