// The conversation: history first, then events as they arrive.

import { make } from "./dom.js";
import { Answer, contentOf, noteArticle, partsOf, personArticle } from "./turn.js";

const NEAR_END = 120;
const BESIDE = new Set(["memory", "compaction"]);

/** The events of turns that are not complete in a history read up to `seq`. */
export function unfinishedFrom(events, seq) {
  let begin = -1;
  for (const [place, frame] of events.entries()) {
    const { runs, event } = frame.payload;
    if (event.type === "turn_started" && begin < 0) begin = place;
    const isItsEnd = event.type === "turn_finished" && begin >= 0 && overlap(runs, events[begin].payload.runs);
    if (isItsEnd && frame.seq <= seq) begin = -1;
  }
  return begin < 0 ? [] : events.slice(begin);
}

function overlap(some, others) {
  return some.some((each) => others.includes(each));
}

/**
 * The part of a history that the events of an unfinished turn do not repeat: what came before the turn, the message
 * that it answers, and what an earlier process had already answered before it ended.
 */
export function historyBefore(entries, events) {
  const { runs } = events[0].payload;
  const isAnswer = (entry) => runs.includes(entry.run) && entry.message?.role === "assistant";
  let kept = entries.filter(isAnswer).length - events.filter((frame) => frame.payload.event.type === "answered").length;
  const end = entries.findIndex((entry) => isAnswer(entry) && kept-- <= 0);
  return end < 0 ? entries : entries.slice(0, end);
}

/**
 * `who` has the agent's `name` and `emoji` and whether reasoning is shown. `missing(runs, place)` is called for a turn
 * whose message was not sent from here; it passes the message to `place`.
 */
export class Conversation {
  #root;
  #who;
  #missing;
  #own = new Map();
  #shown = new Set();
  #answer = null;
  #follows = true;

  constructor(root, who, missing) {
    this.#root = root;
    this.#who = who;
    this.#missing = missing;
    // Scroll with new text only while the reader is at the end.
    root.addEventListener("scroll", () => {
      this.#follows = root.scrollHeight - root.scrollTop - root.clientHeight < NEAR_END;
    });
    root.addEventListener("click", (event) => {
      if (event.target.closest("summary")) this.#follows = false;
    });
    const follow = () => this.#follows && this.scrollToEnd();
    new MutationObserver(follow).observe(root, { childList: true, subtree: true });
    new ResizeObserver(follow).observe(root);
  }

  get isRunning() {
    return this.#answer !== null;
  }

  clear() {
    this.#root.replaceChildren();
    this.#answer = null;
    this.#own.clear();
    this.#shown.clear();
  }

  showHistory(entries, total, notes = []) {
    this.clear();
    const shown = entries.filter((entry) => entry.message && !BESIDE.has(entry.source));
    const before = total - entries.length;
    if (before > 0) this.note(`${before} earlier messages are not shown.`);
    let answer = this.#showNotes({ notes }, null);
    for (const entry of shown) answer = this.#showEntry(entry, answer);
    answer?.finish({ status: "ok", text: "", error: "" });
    this.scrollToEnd();
  }

  /** Show a message that was typed here; returns the object that displays its state. */
  addOwn(text) {
    const article = personArticle("You", text);
    const state = make("p", { class: "faint", role: "status" });
    article.append(state);
    this.#root.append(article);
    this.scrollToEnd();
    return new OwnMessage(article, state);
  }

  /** Show a message that was typed here again after the conversation was redrawn, unless it is already shown. */
  putBack(own) {
    if (own.run && this.#shown.has(own.run)) return;
    this.#root.append(own.article);
    if (own.run) this.#own.set(own.run, own);
  }

  /** The message was accepted; its turn has this run. */
  noteRun(run, own) {
    own.run = run;
    this.#own.set(run, own);
  }

  note(text, kind) {
    this.#root.append(noteArticle(text, kind));
  }

  /** Show an event of a turn. Returns the end of a turn or of a command; null for every other event. */
  apply(runs, event) {
    if (event.type === "turn_started") {
      this.#begin(runs);
      return null;
    }
    if (event.type === "accepted") return null;
    if (event.type === "turn_finished") return this.#finish(runs, event);
    if (event.type === "notice" && !this.#answer) {
      this.note(event.text);
      return null;
    }
    this.#applyToAnswer(runs, event);
    return null;
  }

  scrollToEnd() {
    this.#follows = true;
    this.#root.scrollTop = this.#root.scrollHeight;
  }

  #begin(runs) {
    const isKnown = runs.some((run) => this.#own.has(run) || this.#shown.has(run));
    for (const run of runs) this.#own.get(run)?.showState("");
    const answer = this.#startAnswer(runs, true);
    this.#root.append(answer.element);
    this.#answer = answer;
    if (!isKnown) this.#missing(runs, (entry) => answer.element.before(this.#personEntry(entry)));
  }

  #finish(runs, event) {
    const answer = this.#answer && overlap(runs, this.#answer.runs) ? this.#answer : null;
    if (answer) {
      answer.finish(event);
      this.#answer = null;
    } else if (event.text || event.error) {
      this.note(event.error || event.text, event.error ? "error" : "note"); // a command has no turn
    }
    const own = runs.filter((run) => this.#own.delete(run));
    return { own, isCommand: !answer, text: event.error || event.text || "" };
  }

  #applyToAnswer(runs, event) {
    if (!this.#answer) {
      this.#answer = this.#startAnswer(runs, false);
      this.#root.append(this.#answer.element);
    }
    const answer = this.#answer;
    switch (event.type) {
      case "spoken":
        return answer.speak(event.text);
      case "thought":
        return answer.think(event.text);
      case "answered":
        return answer.closeMessage(event.message.content);
      case "tool_started":
        return answer.startTool(event.call);
      case "tool_progress":
        return answer.progress(event.callId, event.text);
      case "tool_finished": {
        const { text, pictures } = contentOf(event.result.content);
        return answer.finishTool(event.call, { text, pictures, isError: event.result.isError, seconds: event.seconds });
      }
      case "approval_asked":
        return answer.asked(event.request);
      case "approval_given":
        return answer.decided(event.request, event.decision);
      case "notice":
        return answer.notice(event.text);
      default:
        return undefined; // a newer gateway may send other events
    }
  }

  #startAnswer(runs, isWhole) {
    const { name, emoji, showsThinking } = this.#who();
    return new Answer(name, emoji, { runs, showsThinking, isWhole });
  }

  #showEntry(entry, answer) {
    const { message } = entry;
    if (message.role === "user") {
      answer?.finish({ status: "ok", text: "", error: "" });
      this.#root.append(this.#personEntry(entry));
      return this.#showNotes(entry, null);
    }
    const open = answer ?? this.#startAnswer([], true);
    if (!answer) this.#root.append(open.element);
    if (message.role === "toolResult") {
      const { text, pictures } = contentOf(message.content);
      const call = { id: message.toolCallId, name: message.toolName, arguments: {} };
      open.finishTool(call, { text, pictures, isError: Boolean(message.isError) });
      return this.#showNotes(entry, open);
    }
    for (const part of partsOf(message.content)) {
      if (part.type === "text") open.speak(part.text);
      if (part.type === "thinking" && part.thinking) open.think(part.thinking);
      if (part.type === "toolCall") open.startTool({ id: part.id, name: part.name, arguments: part.arguments });
    }
    open.closeMessage([]);
    if (message.errorMessage && !entry.notes?.some(({ kind }) => kind === "failed")) open.notice(message.errorMessage);
    return this.#showNotes(entry, open);
  }

  /** Show what happened after a message of the history; returns the answer that is still open. */
  #showNotes(entry, answer) {
    let open = answer;
    for (const { kind, text, why } of entry.notes ?? []) {
      if (kind === "unanswered") {
        open?.finish({ status: "ok", text: "", error: "" });
        this.#root.append(personArticle("You", text));
        this.note(why, "error");
        open = null;
        continue;
      }
      if (!open) {
        open = this.#startAnswer([], true);
        this.#root.append(open.element);
      }
      if (kind === "failed") open.problem(text);
      else open.notice(kind === "aborted" ? "Stopped." : text);
    }
    return open;
  }

  #personEntry(entry) {
    if (entry.run) this.#shown.add(entry.run);
    const { text, pictures } = contentOf(entry.message.content);
    const other = entry.source && entry.source !== "chat" ? entry.source : "You";
    return personArticle(entry.message.sender || other, text, pictures);
  }
}

/** A message that was typed here, until its turn starts. */
export class OwnMessage {
  run = null;

  constructor(article, state) {
    this.article = article;
    this.state = state;
  }

  showState(text) {
    this.state.textContent = text;
  }

  /** The message could not be sent; `again` retries. */
  fail(problem, again) {
    const retry = () => {
      this.showState("");
      again();
    };
    const button = make("button", { type: "button", on: { click: retry } }, "Send again");
    this.state.replaceChildren(make("span", { class: "problem" }, problem), " ", button);
  }
}
