// The list of conversations.

import { byId, make, shorten } from "./dom.js";

/** Prefix of the conversations that this page created; their first words become their labels. */
export const OWN_PREFIX = "chat-";

/** The name of a conversation: its label, else the distinctive part of its key. */
export function sessionName(row) {
  if (row.label) return shorten(row.label, 80);
  const parts = row.key.split(":");
  const rest = parts[0] === "agent" ? parts.slice(2).join(":") : row.key;
  if (rest === "main") return "Main conversation";
  return rest.startsWith(OWN_PREFIX) ? "New conversation" : shorten(rest, 80);
}

/** `choose(key)` opens a conversation. */
export class SessionPane {
  #list = byId("sessions");
  #menu = byId("menu");
  #choose;

  constructor(choose) {
    this.#choose = choose;
    this.#menu.addEventListener("click", () => this.#unfold(this.#menu.getAttribute("aria-expanded") === "false"));
    byId("side").addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        this.#unfold(false);
        this.#menu.focus();
      }
    });
  }

  /** Draw the list; `agents` is empty if there is only one, whose name is not shown. */
  show(rows, current, agents) {
    const focused = document.activeElement?.dataset?.key;
    this.#list.replaceChildren(...rows.map((row) => make("li", {}, this.#button(row, current, agents))));
    if (focused) this.#list.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  fold() {
    this.#unfold(false);
  }

  #button(row, current, agents) {
    const agent = agents.find((each) => each.id === row.agent);
    const format = { dateStyle: "short", timeStyle: "short" };
    const when = row.updatedAt ? new Date(row.updatedAt).toLocaleString([], format) : "new";
    const whose = agent ? `${agent.emoji} ${agent.name}`.trim() : "";
    const facts = [whose, when, row.running ? "answering" : ""].filter(Boolean);
    return make(
      "button",
      {
        type: "button",
        "data-key": row.key,
        "aria-current": row.key === current ? "true" : null,
        on: { click: () => this.#choose(row.key) },
      },
      make("bdi", { class: "session-name" }, sessionName(row)),
      make("span", { class: "session-facts faint" }, facts.join(" · ")),
    );
  }

  #unfold(isOpen) {
    this.#menu.setAttribute("aria-expanded", String(isOpen));
    byId("chat-page").classList.toggle("side-open", isOpen);
    if (isOpen) (this.#list.querySelector("[aria-current]") ?? byId("new")).focus();
  }
}
