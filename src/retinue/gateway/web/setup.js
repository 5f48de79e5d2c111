// The guided first run: one step at a time, with the same questions as `retinue setup` in a terminal.

import { byId, make } from "./dom.js";

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
      make("p", {}, "To download a model that runs here, use ", make("code", {}, "retinue setup"), " in a terminal."),
    ];
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
