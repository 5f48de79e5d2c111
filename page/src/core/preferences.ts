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

export type Theme = "system" | "light" | "dark";
export const theme = keep<Theme>("theme", "system");
export const railIsOpen = keep("rail", true);
export const panelWidth = keep("panelWidth", 400);
// `keep` stores nothing while a value is its fallback, so the fallbacks have names.
const NO_THREADS: string[] = [];
const NEVER_SEEN: Record<string, string> = {};
const NO_DRAFTS: Record<string, string> = {};
export const pinned = keep("pinned", NO_THREADS);
/** When each thread was last looked at, and since when this browser remembers that. */
export const seen = keep("seen", NEVER_SEEN);
export const seenSince = keep("seenSince", "");
export const notifies = keep("notifies", false);
/** Text that was typed but not sent, by session; it survives a reload of the tab. */
export const drafts = keep("drafts", NO_DRAFTS, sessionStorage);

/** Forget what this browser knows about conversations; what concerns only the look stays. */
export function forgetConversations(): void {
  pinned.value = NO_THREADS;
  seen.value = NEVER_SEEN;
  seenSince.value = "";
  drafts.value = NO_DRAFTS;
}

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});
