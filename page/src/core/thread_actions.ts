// What can be done with a thread, offered in the rail, in its head and in the list of threads.
import type { SessionRow } from "../generated/wire";
import { askText, confirm } from "../parts/dialog";
import type { MenuItem } from "../parts/menu";
import { attempting, call, may } from "./gateway";
import { pinned } from "./preferences";
import { loadSessions, sessionName } from "./stores";

export function isPinned(key: string): boolean {
  return pinned.value.includes(key);
}

export function togglePin(key: string): void {
  pinned.value = isPinned(key) ? pinned.value.filter((each) => each !== key) : [...pinned.value, key];
}

export async function renameThread(row: SessionRow): Promise<void> {
  const label = await askText("Rename the conversation", "Name", row.label ?? "", "Rename");
  if (label === null) return;
  await attempting(async () => {
    await call("sessions.patch", { sessionKey: row.key, label: label.trim() || null });
    await loadSessions();
  });
}

async function startAfresh(row: SessionRow): Promise<void> {
  const question = "Its messages are archived; the next message starts a new conversation.";
  if (!(await confirm(`Start “${sessionName(row)}” afresh?`, question, "Start afresh", false))) return;
  await attempting(async () => {
    await call("sessions.reset", { sessionKey: row.key });
    await loadSessions();
  });
}

export function threadMenu(row: SessionRow): MenuItem[] {
  const pin: MenuItem = isPinned(row.key)
    ? { icon: "pin-off", text: "Unpin", act: () => togglePin(row.key) }
    : { icon: "pin", text: "Pin", act: () => togglePin(row.key) };
  if (!may("write")) return [pin];
  return [
    pin,
    { icon: "pencil", text: "Rename", act: () => void renameThread(row) },
    { icon: "archive", text: "Start afresh", act: () => void startAfresh(row) },
  ];
}
