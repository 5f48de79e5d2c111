// The message field: Enter sends, Shift+Enter inserts a line break, `/` lists commands, Escape stops the turn.

import { byId, make } from "./dom.js";

const MAX_OFFERED = 8;

/** `send(text)` sends a message, `stop()` stops the running turn. */
export class Composer {
  #form = byId("composer");
  #field = byId("message");
  #list = byId("commands");
  #stopButton = byId("stop");
  #send;
  #stop;
  #commands = [];
  #offered = [];
  #chosen = 0;

  constructor(send, stop) {
    this.#send = send;
    this.#stop = stop;
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#field.addEventListener("input", () => this.#typed());
    this.#field.addEventListener("keydown", (event) => this.#pressed(event));
    this.#stopButton.addEventListener("click", () => stop());
  }

  set commands(names) {
    this.#commands = names;
  }

  set isRunning(running) {
    this.#stopButton.hidden = !running;
  }

  /** Disable the field and show the reason; an empty reason enables it. */
  bar(reason) {
    this.#field.disabled = Boolean(reason);
    byId("send").disabled = Boolean(reason);
    this.#field.placeholder = reason || "Message, or / for commands";
  }

  focus() {
    if (!matchMedia("(pointer: coarse)").matches) this.#field.focus();
  }

  #submit() {
    const text = this.#field.value.trim();
    if (!text) return;
    this.#field.value = "";
    this.#typed();
    this.#send(text);
  }

  #typed() {
    const typed = /^\/([\w-]*)$/.exec(this.#field.value);
    const begun = typed?.[1].toLowerCase();
    const fitting = this.#commands.filter((name) => name.startsWith(begun) && name !== begun);
    this.#offered = typed ? fitting.slice(0, MAX_OFFERED) : [];
    this.#chosen = 0;
    this.#draw();
  }

  #draw() {
    this.#list.replaceChildren(
      ...this.#offered.map((name, place) =>
        make(
          "li",
          {
            id: `command-${place}`,
            role: "option",
            "aria-selected": String(place === this.#chosen),
            on: { mousedown: (event) => event.preventDefault(), click: () => this.#complete(name) },
          },
          `/${name}`,
        ),
      ),
    );
    const isOpen = this.#offered.length > 0;
    this.#list.hidden = !isOpen;
    this.#field.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.#field.setAttribute("aria-activedescendant", `command-${this.#chosen}`);
    else this.#field.removeAttribute("aria-activedescendant");
  }

  #complete(name) {
    this.#field.value = `/${name} `;
    this.#offered = [];
    this.#draw();
    this.#field.focus();
  }

  #pressed(event) {
    if (event.isComposing) return;
    if (this.#offered.length && this.#choose(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !matchMedia("(pointer: coarse)").matches) {
      event.preventDefault();
      this.#submit();
    } else if (event.key === "Escape" && !this.#stopButton.hidden) {
      this.#stop();
    }
  }

  /** Handle a key while commands are listed; returns false if the key has its usual meaning. */
  #choose(event) {
    const count = this.#offered.length;
    switch (event.key) {
      case "ArrowDown":
        this.#chosen = (this.#chosen + 1) % count;
        break;
      case "ArrowUp":
        this.#chosen = (this.#chosen + count - 1) % count;
        break;
      case "Tab":
        event.preventDefault();
        this.#complete(this.#offered[this.#chosen]);
        return true;
      case "Escape":
        this.#offered = [];
        break;
      default:
        return false;
    }
    event.preventDefault();
    this.#draw();
    return true;
  }
}
