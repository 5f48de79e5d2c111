// What the person chose for this browser. Unreadable storage means the defaults.
import { effect, type Signal, signal } from "@preact/signals";

const PREFIX = "retinue.";

function keep<T>(name: string, fallback: T, storage: Storage = localStorage): Signal<T> {
  let first = fallback;
  try {
    first = JSON.parse(storage.getItem(PREFIX + name) ?? "null") ?? fallback;
  } catch {
    // The fallback stays.
  }
  const kept = signal(first);
  effect(() => {
    if (kept.value === fallback) storage.removeItem(PREFIX + name);
    else storage.setItem(PREFIX + name, JSON.stringify(kept.value));
  });
  return kept;
}

const NONE: Record<string, string> = {};

export type Theme = "system" | "light" | "dark";
export const theme = keep<Theme>("theme", "system");
export const railIsOpen = keep("rail", true);
export const panelWidth = keep("panelWidth", 400);
export const pinned = keep<string[]>("pinned", []);
/** When each thread was last looked at, and since when this browser remembers that. */
export const seen = keep("seen", NONE);
export const seenSince = keep("seenSince", "");
export const notifies = keep("notifies", false);
/** Text that was typed but not sent, by session; it survives a reload of the tab. */
export const drafts = keep("drafts", NONE, sessionStorage);

/** Forget what tells about threads; what the person chose for the page itself stays. */
export function forgetThreads(): void {
  seen.value = NONE;
  seenSince.value = "";
  drafts.value = NONE;
}

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});
