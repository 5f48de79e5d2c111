// The parts of a conversation: a person's message, an answer with its tool calls, a notice.

import { make, reveal, shorten } from "./dom.js";
import { renderMarkdown } from "./markdown.js";

const MAX_SHOWN = 100_000;
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const TELLING = ["command", "path", "file_path", "query", "url", "name", "message"];
const VERDICTS = { "allow-once": "Allowed once", "allow-always": "Always allowed", deny: "Denied" };

/** The author, as a heading for screen readers. */
function speaker(name, emoji) {
  const mark = emoji ? make("span", { "aria-hidden": "true" }, `${emoji} `) : null;
  return make("h2", { class: "speaker" }, mark, make("bdi", {}, name));
}

/** A message of a person, unchanged. */
export function personArticle(name, text, pictures = []) {
  return make("article", { class: "said person" }, speaker(name), asTyped(text), ...pictures.map(pictureOf));
}

/** The output of a command, a notice, or an error. */
export function noteArticle(text, kind = "note") {
  return make("article", { class: kind, role: kind === "error" ? "alert" : null }, asTyped(text));
}

function asTyped(text) {
  return make("p", { class: "plain", dir: "auto" }, text);
}

function pictureOf({ type, data }) {
  if (!PICTURES.has(type)) return make("p", { class: "faint" }, `A picture that is not shown (${shorten(type, 40)})`);
  const source = `data:${type};base64,${data.replace(/[^A-Za-z0-9+/=]/g, "")}`;
  return make("img", { src: source, alt: "Picture", class: "picture" });
}

/** Streamed text, drawn as Markdown; the pause between two draws is at least the time of one. */
class Prose {
  element = make("div", { class: "prose", dir: "auto" });
  text = "";
  #timer = 0;
  #cost = 0;

  add(more) {
    this.text += more;
    this.#timer ||= setTimeout(() => this.draw(), Math.max(30, this.#cost * 5));
  }

  set(text) {
    this.text = text;
    this.draw();
  }

  draw() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const began = performance.now();
    this.element.replaceChildren(...renderMarkdown(this.text));
    this.#cost = performance.now() - began;
  }
}

/** A collapsed element whose content is created when it is opened. */
class Fold {
  #body = make("div", { class: "fold-body" });
  #render;

  constructor(kind, summary, render) {
    this.#render = render;
    const attributes = { class: kind, on: { toggle: () => this.refresh() } };
    this.element = make("details", attributes, make("summary", {}, ...summary), this.#body);
  }

  refresh() {
    if (this.element.open) this.#body.replaceChildren(...this.#render());
  }
}

function preformatted(title, text, label) {
  const rest = text.length - MAX_SHOWN;
  const shown = rest > 0 ? `${text.slice(0, MAX_SHOWN)}\n… ${rest} more characters` : text;
  return [make("h3", {}, title), make("pre", { tabindex: "0", role: "group", "aria-label": label }, reveal(shown))];
}

/** One tool call: its name and main argument; the rest is collapsed. */
class ToolCall {
  #state = make("span", { class: "tool-state" }, "runs …");
  #call;
  #progress = "";
  #result = null;

  constructor(call) {
    this.#call = call;
    this.name = call.name;
    this.id = call.id;
    const brief = make("bdi", { class: "tool-brief" }, briefly(call.arguments));
    const summary = [make("b", {}, shorten(call.name, 80)), " ", brief, " ", this.#state];
    this.fold = new Fold("tool", summary, () => this.#content());
    this.element = this.fold.element;
  }

  get isFinished() {
    return this.#result !== null;
  }

  /** Whether it waits for approval. */
  wait(isAsked) {
    if (!this.#result) this.#state.textContent = isAsked ? "waits for an answer" : "runs …";
  }

  progress(text) {
    this.#progress = `${this.#progress}${text}\n`.slice(-MAX_SHOWN);
    this.fold.refresh();
  }

  finish({ text, pictures, isError, seconds }) {
    this.#result = { text, pictures };
    this.#state.textContent = isError ? "failed" : seconds > 0.1 ? `done in ${seconds.toFixed(1)} s` : "done";
    this.element.classList.toggle("failed", isError);
    this.fold.refresh();
  }

  /** The turn ended; a call without a result stays without one. */
  abandon() {
    if (!this.#result) this.#state.textContent = "did not end";
  }

  #content() {
    const written = JSON.stringify(this.#call.arguments, null, 2) ?? "";
    const shown = preformatted("Arguments", written, "Arguments");
    if (this.#result) {
      shown.push(...preformatted("Result", this.#result.text || "(nothing)", "Result"));
      shown.push(...this.#result.pictures.map(pictureOf));
    } else if (this.#progress) {
      shown.push(...preformatted("So far", this.#progress, "So far"));
    }
    return shown;
  }
}

function briefly(values) {
  const given = values && typeof values === "object" ? values : {};
  const name = [...TELLING, ...Object.keys(given)].find((each) => typeof given[each] === "string");
  return name === undefined ? "" : shorten(given[name], 120);
}

/** The text and pictures in the content of a message, in the format of events and transcripts. */
export function contentOf(parts) {
  const list = partsOf(parts);
  const texts = list.filter((part) => part.type === "text").map((part) => part.text);
  const pictures = list.filter((part) => part.type === "image");
  return {
    text: texts.join(""),
    pictures: pictures.map((part) => ({ type: part.mediaType ?? part.mimeType ?? "", data: part.data ?? "" })),
  };
}

/** The parts of a message; old transcripts have a plain text instead. */
export function partsOf(content) {
  return typeof content === "string" ? [{ type: "text", text: content }] : (content ?? []);
}

/** An answer: text, reasoning and calls in order of arrival. */
export class Answer {
  /** `runs` are the messages that it answers; `isWhole` is false if its beginning was missed. */
  constructor(name, emoji, { runs, showsThinking, isWhole }) {
    this.element = make("article", { class: "said agent" }, speaker(name, emoji));
    this.runs = runs;
    this.showsThinking = showsThinking;
    this.isWhole = isWhole;
    this.spoken = "";
    this.tools = [];
    this.prose = null;
    this.thinking = null;
  }

  speak(text) {
    if (!this.prose) {
      this.prose = new Prose();
      this.#add(this.prose.element);
      this.thinking = null;
    }
    this.prose.add(text);
  }

  think(text) {
    if (!this.showsThinking) return;
    if (!this.thinking) {
      const thought = { text: "" };
      const fold = new Fold("thinking", ["Thinking"], () => [asTyped(thought.text)]);
      this.thinking = { thought, fold };
      this.#add(fold.element);
    }
    this.thinking.thought.text += text;
    this.thinking.fold.refresh();
  }

  /** One message of the model is complete; if its beginning was missed, the whole message replaces it. */
  closeMessage(content) {
    const whole = contentOf(content).text;
    if (!this.isWhole && whole) {
      this.speak("");
      this.prose.set(whole);
    }
    this.isWhole = true;
    this.#closeProse();
    this.thinking = null;
  }

  startTool(call) {
    this.#closeProse();
    this.thinking = null;
    const tool = new ToolCall(call);
    this.tools.push(tool);
    this.#add(tool.element);
  }

  progress(callId, text) {
    this.#running(callId)?.progress(text);
  }

  finishTool(call, result) {
    if (!this.#running(call.id)) this.startTool(call);
    this.#running(call.id).finish(result);
  }

  notice(text) {
    this.#closeProse();
    this.#add(make("p", { class: "plain faint", dir: "auto" }, text));
  }

  problem(text) {
    this.#closeProse();
    this.#add(make("p", { class: "plain problem", dir: "auto" }, text));
  }

  asked(request) {
    this.#lastCall(request.tool)?.wait(true);
  }

  decided(request, decision) {
    this.#lastCall(request.tool)?.wait(false);
    const verdict = VERDICTS[decision.verdict] ?? decision.verdict;
    this.notice(`${verdict}: ${shorten(request.title, 200)} (${shorten(decision.because, 200)})`);
  }

  finish({ status, text, error }) {
    this.#closeProse();
    for (const tool of this.tools) tool.abandon();
    if (text && !this.spoken) {
      this.speak(text);
      this.#closeProse();
    }
    if (error) this.#add(make("p", { class: "plain problem", role: "alert", dir: "auto" }, error));
    else if (status === "aborted") this.#add(make("p", { class: "faint" }, "Stopped."));
    else if (this.element.childElementCount < 2) this.#add(make("p", { class: "faint" }, "The answer is empty."));
  }

  #lastCall(name) {
    return this.tools.findLast((tool) => tool.name === name);
  }

  /** The oldest call with this id that has no result; some providers give several calls the same id. */
  #running(id) {
    return this.tools.find((tool) => tool.id === id && !tool.isFinished);
  }

  #closeProse() {
    if (!this.prose) return;
    this.prose.draw();
    this.spoken += this.prose.text;
    this.prose = null;
  }

  #add(element) {
    this.element.append(element);
  }
}
