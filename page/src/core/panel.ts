// The panel on the right shows one detail; on a phone it is a sheet.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { route } from "./router";

interface PanelContent {
  title: string;
  body: () => ComponentChildren;
}

export const panel = signal<PanelContent | null>(null);
let opener: HTMLElement | null = null;

export function openPanel(title: string, body: () => ComponentChildren): void {
  if (!panel.value) opener = document.activeElement as HTMLElement | null;
  panel.value = { title, body };
}

/** Close the panel; the focus returns to where it came from. */
export function closePanel(): void {
  if (!panel.value) return;
  panel.value = null;
  if (opener?.isConnected) opener.focus();
  opener = null;
}

/** What the panel is about: a view, or one conversation. */
const aboutOf = ({ view, subject }: { view: string; subject: string }) => (view === "chat" ? `chat ${subject}` : view);
let about = aboutOf(route.peek());
route.subscribe((next) => {
  if (aboutOf(next) !== about) panel.value = null;
  about = aboutOf(next);
});
