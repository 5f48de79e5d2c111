// The keys that work everywhere.
import { signal } from "@preact/signals";
import { closeDrawer, drawerIsOpen } from "../layout/drawer";
import { stage } from "./gateway";
import { closePanel, panel } from "./panel";
import { go, route } from "./router";

export const showsPalette = signal(false);
export const showsHelp = signal(false);

export const KEYS: readonly [string, string][] = [
  ["Ctrl K", "Find threads, views and commands"],
  ["/", "Write a message"],
  ["Esc", "Close the panel, stop the answer while the message field has the focus"],
  ["A / D", "Allow once or deny the approval that has the focus"],
  ["↑ ↓", "Move in lists and menus"],
  ["Enter", "Send, open"],
  ["Shift Enter", "Start a new line"],
  ["?", "Show these keys"],
];

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
}

function pressed(event: KeyboardEvent): void {
  if (stage.value !== "in" || event.isComposing) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    showsPalette.value = !showsPalette.value;
    return;
  }
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (drawerIsOpen.value) closeDrawer();
    else if (panel.value && !(isTyping(event.target) && (event.target as HTMLElement).id === "message")) closePanel();
    return;
  }
  if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "?") showsHelp.value = true;
  if (event.key === "/") {
    event.preventDefault();
    if (route.value.view !== "chat") go("chat");
    requestAnimationFrame(() => document.getElementById("message")?.focus());
  }
}

/** Arrow keys move the focus among the entries of a list. */
export function moveInList(event: KeyboardEvent): void {
  const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  if (!step || isTyping(event.target)) return;
  const list = event.currentTarget as HTMLElement;
  const entries = [...list.querySelectorAll<HTMLElement>("[data-entry]")];
  const at = entries.indexOf(document.activeElement as HTMLElement);
  const next = entries[Math.max(0, Math.min(entries.length - 1, at + step))];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

export function listenToKeys(): void {
  document.addEventListener("keydown", pressed);
}
