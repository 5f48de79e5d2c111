// Approval requests. They are shown in a separate area that no answer or tool can write to, so that text in the
// conversation cannot imitate a request.

import { byId, make, reveal, shorten } from "./dom.js";

const VERDICTS = [
  ["allow-once", "Allow once"],
  ["allow-always", "Always allow"],
  ["deny", "Deny"],
];

/** Requests that are questions of the agent, not permissions: the labels of their answers. */
const ANSWERS = {
  ui_confirm: [
    ["allow-once", "Yes"],
    ["deny", "No"],
  ],
  ui_prompt: [
    ["allow-once", "Answer"],
    ["deny", "Do not answer"],
  ],
};
const MAX_ANSWER = 400;

/** `resolve(request, verdict, reason)` decides a request; `label(sessionKey)` names a conversation, null for the open one. */
export class Approvals {
  #root = byId("approvals");
  #cards = new Map();
  #resolve;
  #label;

  constructor(resolve, label) {
    this.#resolve = resolve;
    this.#label = label;
  }

  /** Show exactly these requests; returns those that were not shown before. */
  show(pending) {
    const open = new Set(pending.map(({ request }) => request.id));
    for (const id of [...this.#cards.keys()].filter((each) => !open.has(each))) this.#close(id);
    const fresh = pending.filter(({ request }) => !this.#cards.has(request.id));
    for (const each of fresh) this.#open(each);
    this.#root.hidden = this.#cards.size === 0;
    return fresh.map(({ request }) => request);
  }

  #open({ request, expiresAt }) {
    const decide = (verdict, reason) => this.#decide(request, verdict, reason);
    const card = new Card(request, expiresAt, this.#label(request.sessionKey), decide);
    this.#cards.set(request.id, card);
    this.#root.append(card.element);
  }

  #close(id) {
    const card = this.#cards.get(id);
    if (!card) return;
    const hadFocus = card.element.contains(document.activeElement);
    card.element.remove();
    this.#cards.delete(id);
    if (hadFocus) byId("message").focus();
  }

  async #decide(request, verdict, reason) {
    const card = this.#cards.get(request.id);
    card.disable(true);
    try {
      await this.#resolve(request, verdict, reason);
      this.#close(request.id);
      this.#root.hidden = this.#cards.size === 0;
    } catch (error) {
      card.showProblem(error.message);
      card.disable(false);
    }
  }
}

class Card {
  #buttons;
  #problem = make("p", { class: "problem", role: "alert", hidden: true });

  constructor(request, expiresAt, elsewhere, decide) {
    const title = make("h2", { id: `title-${request.id}` }, reveal(request.title));
    const exactly = { tabindex: "0", role: "group", "aria-label": "Exact request" };
    const verdicts = VERDICTS.filter(([verdict]) => verdict !== "allow-always" || request.remember.length);
    const answer =
      request.tool === "ui_prompt" ? make("input", { maxlength: `${MAX_ANSWER}`, "aria-label": "Your answer" }) : null;
    const choose = (verdict) => decide(verdict, verdict === "deny" ? "" : (answer?.value.trim() ?? ""));
    this.#buttons = (ANSWERS[request.tool] ?? verdicts).map(([verdict, text]) =>
      make("button", { type: "button", class: verdict, on: { click: () => choose(verdict) } }, text),
    );
    answer?.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) choose("allow-once");
    });
    const until = new Date(expiresAt).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const terms = `${shorten(request.tool, 60)} · a no unless answered by ${until}`;
    this.element = make(
      "div",
      { class: "approval", role: "group", "aria-labelledby": title.id },
      title,
      elsewhere ? make("p", { class: "faint" }, "In ", make("bdi", {}, elsewhere)) : null,
      make("pre", exactly, reveal(request.detail)),
      ...request.explanation.map((line) => make("p", { class: "plain faint" }, reveal(line))),
      request.remember.length ? remembered(request.remember) : null,
      answer,
      this.#problem,
      make("div", { class: "verdicts" }, ...this.#buttons, make("span", { class: "faint" }, terms)),
    );
  }

  disable(isBusy) {
    for (const button of this.#buttons) button.disabled = isBusy;
  }

  showProblem(problem) {
    this.#problem.textContent = problem;
    this.#problem.hidden = false;
  }
}

function remembered(patterns) {
  const lines = patterns.map((pattern) => make("code", {}, reveal(pattern.map(quoted).join(" "))));
  return make("p", { class: "faint remembered" }, "“Always” would allow exactly: ", ...lines);
}

function quoted(word) {
  return /^[\w@%+=:,./*-]+$/.test(word) ? word : JSON.stringify(word);
}
