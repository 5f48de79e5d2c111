// The command palette: threads, views, commands and settings by a few letters.
import { useEffect, useRef, useState } from "preact/hooks";
import { suggested } from "../chat/composer";
import { thread } from "../chat/thread";
import { knows, may, signOut } from "../core/gateway";
import { showsHelp, showsPalette } from "../core/keyboard";
import { allowNotifications } from "../core/notifications";
import { theme } from "../core/preferences";
import { go } from "../core/router";
import { agents, sessions, sessionName } from "../core/stores";
import type { IconName } from "../generated/icons";
import { Icon } from "../parts/icon";
import { VIEWS } from "../views/registry";

const MAX_SHOWN = 12;

interface Entry {
  icon: IconName;
  text: string;
  kind: string;
  act: () => void;
}

function entries(): Entry[] {
  const isChat = (act: () => void) => () => {
    go("chat", thread.key.value ?? "");
    act();
  };
  const views = VIEWS.filter(({ group, needs }) => group !== "hidden" && (!needs || knows(needs))).map(({ id, title, icon }) => ({
    icon,
    text: title,
    kind: "View",
    act: () => go(id),
  }));
  const threads = (sessions.value ?? []).map((row) => ({
    icon: "message-square" as const,
    text: sessionName(row),
    kind: "Thread",
    act: () => go("chat", row.key),
  }));
  const commands = thread.introduction.value.commands.map((name) => ({
    icon: "terminal" as const,
    text: `/${name}`,
    kind: "Command",
    act: isChat(() => {
      suggested.value = `/${name} `;
    }),
  }));
  const fresh = agents.value.map(({ id, name }) => ({
    icon: "plus" as const,
    text: agents.value.length > 1 ? `New conversation with ${name}` : "New conversation",
    kind: "Action",
    act: () => thread.begin(id),
  }));
  const settings: Entry[] = [
    { icon: "sun", text: "Light theme", kind: "Setting", act: () => (theme.value = "light") },
    { icon: "moon", text: "Dark theme", kind: "Setting", act: () => (theme.value = "dark") },
    { icon: "monitor", text: "Theme of the system", kind: "Setting", act: () => (theme.value = "system") },
    { icon: "bell", text: "Notify me in this browser", kind: "Setting", act: () => void allowNotifications() },
    { icon: "info", text: "Show all keys", kind: "Help", act: () => (showsHelp.value = true) },
    { icon: "log-out", text: "Sign out", kind: "Action", act: () => signOut() },
  ];
  return [...(may("write") ? fresh : []), ...views, ...threads, ...commands, ...settings];
}

/** Entries whose text has all letters in order; the closer together, the earlier. */
export function rank(texts: readonly string[], typed: string): number[] {
  const wanted = typed.toLowerCase().replace(/\s+/g, "");
  const scored = texts.map((text, place) => [score(text.toLowerCase(), wanted), place] as const);
  const found = scored.filter(([value]) => value < Number.POSITIVE_INFINITY);
  return found.sort(([a, first], [b, second]) => a - b || first - second).map(([, place]) => place);
}

function score(text: string, wanted: string): number {
  if (!wanted) return 0;
  const whole = text.replace(/\s+/g, "").indexOf(wanted);
  if (whole >= 0) return whole;
  let at = -1;
  let gaps = 100;
  for (const letter of wanted) {
    const next = text.indexOf(letter, at + 1);
    if (next < 0) return Number.POSITIVE_INFINITY;
    gaps += next - at - 1;
    at = next;
  }
  return gaps;
}

export function Palette() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [chosen, setChosen] = useState(0);
  const all = entries();
  const found = rank(
    all.map(({ text }) => text),
    typed,
  )
    .slice(0, MAX_SHOWN)
    .map((place) => all[place]!);
  useEffect(() => {
    const opener = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => {
      if (document.activeElement === document.body) opener?.focus();
    };
  }, []);
  const close = () => {
    showsPalette.value = false;
  };
  const run = (entry: Entry | undefined) => {
    if (!entry) return;
    close();
    entry.act();
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setChosen((chosen + 1) % Math.max(1, found.length));
    else if (event.key === "ArrowUp") setChosen((chosen + found.length - 1) % Math.max(1, found.length));
    else if (event.key === "Enter") run(found[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog
      ref={dialog}
      class="dialog palette"
      aria-label="Search and commands"
      onClose={close}
      onClick={(event) => event.target === dialog.current && close()}
    >
      <div class="dialog-body">
        <div class="search-field">
          <Icon name="search" />
          <input
            type="text"
            role="combobox"
            aria-label="Find threads, views and commands"
            placeholder="Find threads, views and commands"
            aria-expanded={true}
            aria-controls="palette-list"
            aria-autocomplete="list"
            aria-activedescendant={found.length ? `palette-${chosen}` : undefined}
            value={typed}
            autofocus
            onInput={(event) => {
              setTyped(event.currentTarget.value);
              setChosen(0);
            }}
            onKeyDown={pressed}
          />
        </div>
        <ul id="palette-list" role="listbox" aria-label="Found">
          {found.map((entry, place) => (
            <li
              key={`${entry.kind} ${entry.text} ${place}`}
              id={`palette-${place}`}
              role="option"
              aria-selected={place === chosen}
              onClick={() => run(entry)}
            >
              <Icon name={entry.icon} />
              <bdi>{entry.text}</bdi>
              <span class="faint">{entry.kind}</span>
            </li>
          ))}
        </ul>
        {!found.length && <p class="faint">Nothing has these letters.</p>}
      </div>
    </dialog>
  );
}
