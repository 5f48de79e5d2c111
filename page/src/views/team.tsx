// The team: its members, their roles, invitations, and the own account.
import { useState } from "preact/hooks";
import { attempting, call, knows, may, signOut } from "../core/gateway";
import { type Resource, useMethod } from "../core/resource";
import { ask } from "../core/team";
import { shorten } from "../core/text";
import { exactTime } from "../core/time";
import type { InvitationRow, Invited, MemberList, MemberRow, TeamFacts } from "../generated/wire";
import { Badge, Time } from "../parts/bits";
import { Button } from "../parts/button";
import { confirm } from "../parts/dialog";
import { Field, SearchField, Select } from "../parts/field";
import { EmptyState } from "../parts/states";
import { Table } from "../parts/table";
import { Loaded, View } from "../parts/view";

const ROLES = ["owner", "admin", "operator", "member", "viewer"] as const;
type RoleName = (typeof ROLES)[number];
const ROLE_OPTIONS = ROLES.map((role) => [role, role] as const);

export default function TeamView() {
  const hasTeam = knows("team.get");
  const team = useMethod("team.get", hasTeam ? {} : null);
  const facts = team.data;
  return (
    <View title={facts?.name ?? "Team"} about={facts ? `Organisation ${facts.organisation}` : undefined}>
      {hasTeam ? (
        <Loaded from={team}>
          {(found) => (
            <>
              {found.member && <Account facts={found} />}
              {may("admin") && <Members />}
              {may("admin") && <Audit />}
            </>
          )}
        </Loaded>
      ) : (
        <EmptyState icon="users" title="This gateway serves no team">
          Nobody but its owner signs in here.
        </EmptyState>
      )}
    </View>
  );
}

function Account({ facts }: { facts: TeamFacts }) {
  const [code, setCode] = useState("");
  const [present, setPresent] = useState("");
  const [fresh, setFresh] = useState("");
  const [note, setNote] = useState("");
  const approve = async (event: Event) => {
    event.preventDefault();
    const found = await attempting(() => ask<{ client: string }>("device/approve", { code }));
    if (found) setNote(`“${found.client}” may now act as you.`);
  };
  const change = async (event: Event) => {
    event.preventDefault();
    const done = await attempting(() => ask("password/change", { present, password: fresh }));
    if (done) signOut("Your password was changed. Sign in with the new one.");
  };
  return (
    <section aria-labelledby="account" class="stack">
      <h2 id="account">Your account</h2>
      <p>
        {facts.member!.login} <Badge>{facts.member!.role}</Badge>
      </p>
      {note && <p role="status">{note}</p>}
      <form class="stack" onSubmit={approve}>
        <Field label="Code of a device that signs in" value={code} onInput={setCode} required maxlength={20} />
        <div>
          <Button type="submit">Approve the device</Button>
        </div>
      </form>
      {facts.password && (
        <form class="stack" onSubmit={change}>
          <Field label="Present password" type="password" value={present} onInput={setPresent} />
          <Field label="New password" type="password" value={fresh} onInput={setFresh} required />
          <div>
            <Button type="submit">Change the password</Button>
          </div>
        </form>
      )}
    </section>
  );
}

function Audit() {
  const [text, setText] = useState("");
  const log = useMethod("team.audit", { text: text || null });
  const check = useMethod("team.audit.verify");
  return (
    <section aria-labelledby="audit" class="stack">
      <h2 id="audit">Audit log</h2>
      {check.data && (
        <p>
          <Badge tone={check.data.ok ? "ok" : "danger"}>{check.data.ok ? "unchanged" : "changed"}</Badge>{" "}
          {check.data.ok ? `${check.data.entries} entries` : check.data.damage.join("; ")}
        </p>
      )}
      <SearchField label="Search the audit log" value={text} onInput={setText} />
      <Loaded from={log}>
        {({ entries }) => (
          <Table
            label="Audit log"
            rows={entries}
            keyOf={({ n }) => String(n)}
            columns={[
              { title: "When", cell: ({ at }) => <Time when={at} />, by: ({ n }) => n },
              { title: "What", cell: ({ kind }) => kind, by: ({ kind }) => kind },
              { title: "Who", cell: ({ who }) => <bdi>{who ?? "erased"}</bdi>, by: ({ who }) => who ?? "" },
              { title: "Details", cell: ({ details }) => <code>{shorten(JSON.stringify(details), 200)}</code>, isWide: true },
            ]}
          />
        )}
      </Loaded>
    </section>
  );
}

function Members() {
  const members = useMethod("members.list");
  return (
    <section aria-labelledby="members">
      <h2 id="members">Members</h2>
      <Loaded from={members}>
        {(found) => (
          <>
            <MemberTable from={members} rows={found.members} />
            <Invitations from={members} rows={found.invitations} />
          </>
        )}
      </Loaded>
    </section>
  );
}

function MemberTable({ from, rows }: { from: Resource<MemberList>; rows: readonly MemberRow[] }) {
  const act = async (what: () => Promise<unknown>) => {
    await attempting(what);
    await from.reload();
  };
  const deactivate = async ({ login }: MemberRow) => {
    const text = "Their sign-ins and tokens end now, and their connections are closed.";
    if (await confirm(`Deactivate ${login}?`, text, "Deactivate")) {
      await act(() => call("members.deactivate", { member: login }));
    }
  };
  const role = (row: MemberRow) =>
    row.role === "service" ? (
      "service"
    ) : (
      <Select
        label={`Role of ${row.login}`}
        hideLabel
        value={row.role}
        options={ROLE_OPTIONS}
        onChange={(value) => void act(() => call("members.role", { member: row.id, role: value as RoleName }))}
      />
    );
  return (
    <Table
      label="Members"
      rows={rows}
      keyOf={({ id }) => id}
      columns={[
        { title: "Member", cell: ({ name, login }) => <bdi>{name === login ? login : `${name} (${login})`}</bdi>, by: ({ login }) => login },
        { title: "Role", cell: role },
        { title: "Last seen", cell: ({ seenAt }) => (seenAt ? <Time when={seenAt} /> : "never"), by: ({ seenAt }) => seenAt ?? "" },
        {
          title: "",
          cell: (row) =>
            row.isActive ? (
              <Button onClick={() => void deactivate(row)}>Deactivate</Button>
            ) : (
              <Button onClick={() => void act(() => call("members.activate", { member: row.id }))}>Activate</Button>
            ),
        },
      ]}
    />
  );
}

function Invitations({ from, rows }: { from: Resource<MemberList>; rows: readonly InvitationRow[] }) {
  const [login, setLogin] = useState("");
  const [role, setRole] = useState<string>("member");
  const [made, setMade] = useState<Invited | null>(null);
  const invite = async (event: Event) => {
    event.preventDefault();
    setMade(await attempting(() => call("members.invite", { login, role: role as RoleName })));
    setLogin("");
    await from.reload();
  };
  const withdraw = async (id: string) => {
    await attempting(() => call("members.withdraw", { id }));
    await from.reload();
  };
  return (
    <>
      <h2>Invitations</h2>
      <form class="stack" onSubmit={invite}>
        <Field label="E-mail address" value={login} onInput={setLogin} required maxlength={200} />
        <Select label="Role" value={role} options={ROLE_OPTIONS} onChange={setRole} />
        <div>
          <Button type="submit" kind="primary">
            Invite
          </Button>
        </div>
      </form>
      {made && (
        <p role="status">
          Send this to {made.invitation.login}; it works once, until {exactTime(made.invitation.expiresAt)}:{" "}
          <code id="invitation">{made.link ?? made.text}</code>
        </p>
      )}
      <ul class="rows" aria-label="Open invitations">
        {rows.map(({ id, login: invited, role: given }) => (
          <li key={id}>
            <bdi>{invited}</bdi> <Badge>{given}</Badge> <Button onClick={() => void withdraw(id)}>Withdraw</Button>
          </li>
        ))}
      </ul>
    </>
  );
}
