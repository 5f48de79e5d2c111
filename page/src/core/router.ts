// One route at a time, in the fragment of the address: the page then works under any path of the gateway.
import { signal } from "@preact/signals";

export interface Route {
  /** The view; `chat` if the address names none. */
  view: string;
  /** What the view shows, for example a session or an agent. */
  subject: string;
  query: URLSearchParams;
}

function readRoute(): Route {
  // Another fragment, such as that of a pairing code, names no view.
  const address = location.hash.startsWith("#/") ? location.hash.slice(2) : "";
  const [path = "", query = ""] = address.split("?", 2);
  const [view = "", ...rest] = path.split("/").map(decode);
  return { view: view || "chat", subject: rest.join("/"), query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal<Route>(readRoute());
window.addEventListener("hashchange", () => {
  route.value = readRoute();
});

export function addressOf(view: string, subject = "", query: Record<string, string> = {}): string {
  const asked = new URLSearchParams(query).toString();
  return `#/${view}${subject ? `/${encodeURIComponent(subject)}` : ""}${asked ? `?${asked}` : ""}`;
}

export function go(view: string, subject = "", query: Record<string, string> = {}): void {
  location.hash = addressOf(view, subject, query);
}

/** Name what is shown without a new entry in the history of the browser. */
export function rename(view: string, subject: string): void {
  const address = addressOf(view, subject);
  if (location.hash === address) return;
  history.replaceState(null, "", location.pathname + location.search + address);
  route.value = readRoute();
}

/** The tab of a view and the way to change it. The address names it, so that it survives a reload and can be linked. */
export function tabOf(view: string, tabs: readonly (readonly [string, ...unknown[]])[]): [string, (id: string) => void] {
  const { subject } = route.value;
  const known = tabs.some(([id]) => id === subject) ? subject : (tabs[0]?.[0] ?? "");
  return [known, (id) => rename(view, id)];
}
