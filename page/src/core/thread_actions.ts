// What can be done with a thread, offered in the rail, in its head and in the list of threads.
import type { SessionRow } from "../generated/wire";
import { askText, confirm } from "../parts/dialog";
import type { MenuItem } from "../parts/menu";
import { attempting, call, may } from "./gateway";
import { pinned } from "./preferences";
import { go } from "./router";
import { saveFile } from "./save_file";
import { loadSessions, sessionName } from "./stores";
import { toast } from "../parts/toast";

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

async function forkThread(row: SessionRow): Promise<void> {
  await attempting(async () => {
    const { sessionKey } = await call("sessions.fork", { sessionKey: row.key });
    await loadSessions();
    go("chat", sessionKey);
    toast(`This is a copy of “${sessionName(row)}”.`, undefined, "git-fork");
  });
}

async function exportThread(row: SessionRow): Promise<void> {
  await attempting(async () => {
    const { text } = await call("sessions.export", { sessionKey: row.key });
    saveFile(`${sessionName(row).replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) || "thread"}.md`, text);
  });
}

async function setArchived(row: SessionRow, archived: boolean): Promise<void> {
  await attempting(async () => {
    await call("sessions.patch", { sessionKey: row.key, archived });
    await loadSessions();
    const done = archived ? "is archived. A new message brings it back." : "is in the list again.";
    toast(`“${sessionName(row)}” ${done}`, archived ? () => void setArchived(row, false) : undefined, "archive");
  });
}

async function deleteThread(row: SessionRow): Promise<void> {
  const question = "It disappears from all lists and cannot be opened again. Its transcript stays in the agent's folder for a while.";
  if (!(await confirm(`Delete “${sessionName(row)}”?`, question, "Delete"))) return;
  await attempting(async () => {
    await call("sessions.archive", { sessionKey: row.key });
    await loadSessions();
    toast(`“${sessionName(row)}” was deleted.`, undefined, "trash-2");
  });
}

export function threadMenu(row: SessionRow): MenuItem[] {
  const pin: MenuItem = isPinned(row.key)
    ? { icon: "pin-off", text: "Unpin", act: () => togglePin(row.key) }
    : { icon: "pin", text: "Pin", act: () => togglePin(row.key) };
  const save: MenuItem = { icon: "download", text: "Export", act: () => void exportThread(row) };
  if (!may("write")) return [pin, save];
  return [
    pin,
    save,
    { icon: "git-fork", text: "Fork", act: () => void forkThread(row) },
    { icon: "pencil", text: "Rename", act: () => void renameThread(row) },
    { icon: "rotate-ccw", text: "Start afresh", act: () => void startAfresh(row) },
    row.archived
      ? { icon: "archive-restore", text: "Restore", act: () => void setArchived(row, false) }
      : { icon: "archive", text: "Archive", act: () => void setArchived(row, true) },
    { icon: "trash-2", text: "Delete", isDanger: true, act: () => void deleteThread(row) },
  ];
}
