// The guided first run: one step at a time, with the same questions as `retinue setup` in a terminal.

import { byId, make } from "./dom.js";

const POLL_MS = 1000;
const MB = 1e6;

function describeDownload({ name, bytes, received, memory, tokensPerSecond, licence }) {
  const size = `${Math.round(bytes / MB).toLocaleString("en")} MB`;
  const left = received ? `, ${Math.floor((100 * received) / bytes)} % are here` : "";
  return `${name} (${size}${left}; ${(memory / 1e9).toFixed(1)} GB of memory, about ${tokensPerSecond} tokens/s, ${licence})`;
}

function showProgress(bar, text, { name, stage, done, total }) {
  if (total) {
    bar.max = total;
    bar.value = done;
  } else bar.removeAttribute("value");
  const of = total ? `: ${Math.floor((100 * done) / total)} % of ${Math.round(total / MB).toLocaleString("en")} MB` : "";
  text.textContent = ` ${name}, ${stage}${of} `;
}

/** The card. `call(method, params)` calls the gateway, `say(text)` sends a message, `changed()` reloads the agent's name. */
export class SetupCard {
  #root = byId("setup");
  #call;
  #say;
  #changed;

  constructor(call, say, changed) {
    this.#call = call;
    this.#say = say;
    this.#changed = changed;
  }

  /** Show the next open step; the card stays hidden if there is none. */
  async load() {
    const state = await this.#call("setup.get", {});
    this.#show(state, "");
  }

  hide() {
    this.#root.hidden = true;
    this.#root.replaceChildren();
  }

  #show(state, problem) {
    if (!state?.next || !state.offered) {
      this.hide();
      return;
    }
    const step = state.steps.find(({ id }) => id === state.next);
    const number = state.steps.indexOf(step) + 1;
    const body = { model: this.#model, you: this.#user, agent: this.#agent, first: this.#first }[step.id];
    const skip = make("button", { type: "button" }, "Skip");
    skip.addEventListener("click", () => this.#answer("setup.skip", { step: step.id }));
    this.#root.replaceChildren(
      make("h2", {}, `Setup, ${number} of ${state.steps.length}: ${step.title}`),
      ...body.call(this, state),
      make("p", { class: "problem", role: "alert" }, problem),
      skip,
    );
    this.#root.hidden = false;
  }

  #model(state) {
    const choices = state.models.map(({ model, about, baseUrl }) => {
      const button = make("button", { type: "button" }, `${model} (${about})`);
      button.addEventListener("click", () => this.#answer("setup.model", { model, baseUrl: baseUrl ?? null }));
      return button;
    });
    const form = this.#form("Key of a provider", "password", "Try the key", (key) => this.#giveKey(key, null));
    return [
      make("p", {}, "Paste a key of Anthropic, OpenAI, Google, OpenRouter or another provider: it is tried at once."),
      form,
      ...choices,
      this.#downloads(state),
    ];
  }

  /** The models that can be downloaded, or the download that runs. */
  #downloads({ downloads, download }) {
    if (download.state === "running") return this.#downloading(download);
    const rows = downloads.map((option) => {
      const button = make("button", { type: "button" }, describeDownload(option));
      button.addEventListener("click", () => this.#download(option.name));
      return make("li", {}, button, ` ${option.about}`);
    });
    const ended = download.message ? [make("p", { class: "problem", role: "alert" }, download.message)] : [];
    const heading = "Download a model that runs on the machine of the gateway";
    const list = make("details", {}, make("summary", {}, heading), ...ended, make("ul", {}, ...rows));
    list.open = ended.length > 0;
    return list;
  }

  async #download(name) {
    this.#busy(true);
    const started = await this.#call("setup.download", { name });
    this.#busy(false);
    if (started) await this.load();
  }

  #downloading(download) {
    const bar = make("progress", { "aria-label": "Download" });
    const text = make("span", {}, "");
    const stop = make("button", { type: "button" }, "Stop");
    stop.addEventListener("click", async () => {
      await this.#call("setup.stop", {});
      await this.load();
    });
    showProgress(bar, text, download);
    const row = make("p", { class: "download" }, bar, text, stop);
    this.#watch(row, bar, text);
    return row;
  }

  /** Follow the download as long as its row is shown. */
  async #watch(row, bar, text) {
    do {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      if (!row.isConnected) return;
      const download = await this.#call("setup.downloading", {});
      if (!download) continue;
      if (download.state !== "running") {
        await this.load();
        return;
      }
      showProgress(bar, text, download);
    } while (row.isConnected);
  }

  async #giveKey(key, provider, anyway = false) {
    this.#busy(true);
    const tried = await this.#call("setup.key", { key, provider, anyway });
    this.#busy(false);
    if (!tried) return;
    if (tried.stored) {
      await this.load();
      return;
    }
    const problem = this.#root.querySelector(".problem");
    problem.textContent = tried.message;
    const again = (label, chosen, store) => {
      const button = make("button", { type: "button" }, label);
      button.addEventListener("click", () => this.#giveKey(key, chosen, store));
      problem.append(button);
    };
    for (const name of tried.providers) again(name, name, false);
    if (tried.model && !tried.ok && !tried.providers.length) again("Store it anyway", tried.model.split("/")[0], true);
  }

  #user() {
    return [this.#form("Your name", "text", "Continue", (userName) => this.#answer("setup.profile", { userName }))];
  }

  #agent(state) {
    const temper = make("select", { "aria-label": "Temper" }, ...state.tempers.map((name) => make("option", {}, name)));
    const form = this.#form("The agent's name", "text", "Continue", async (agentName) => {
      await this.#answer("setup.profile", { agentName, temper: temper.value });
      this.#changed();
    });
    form.querySelector("button").before(make("label", {}, "Temper ", temper));
    return [form];
  }

  #first(state) {
    return state.firstTasks.map(({ title, message }) => {
      const button = make("button", { type: "button" }, title);
      button.addEventListener("click", async () => {
        await this.#answer("setup.skip", { step: "first", done: true });
        this.#say(message);
      });
      return button;
    });
  }

  #form(label, type, action, submit) {
    const field = make("input", { type, required: "", maxlength: "500", autocomplete: "off", "aria-label": label });
    const form = make("form", {}, field, make("button", { type: "submit", class: "primary" }, action));
    field.placeholder = label;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = field.value.trim();
      if (type === "password") field.value = "";
      if (given) submit(given);
    });
    return form;
  }

  async #answer(method, params) {
    this.#busy(true);
    const state = await this.#call(method, params);
    this.#busy(false);
    if (state) this.#show(state, "");
  }

  #busy(is) {
    for (const control of this.#root.querySelectorAll("button, input, select")) control.disabled = is;
  }
}
