// Pairing requests and paired devices. A device chooses its own name and platform, so they are not trusted; the code
// shows which screen a request belongs to.

import { byId, make, shorten } from "./dom.js";

const RIGHTS = [
  ["May read and write", ["read", "write"]],
  ["May only read", ["read"]],
  ["May do everything", ["admin"]],
];

/** `act(method, params)` calls a method and rejects if the gateway refuses; `reload()` shows the list again. */
export class DevicePane {
  #root = byId("devices");
  #menu = byId("menu");
  #cards = new Map();
  #act;

  constructor(act, reload) {
    this.#act = act;
    byId("paired").addEventListener("toggle", ({ target }) => target.open && reload());
  }

  /** Show exactly these devices to a client with these scopes; returns the requests that were not shown before. */
  show({ waiting, paired }, { scopes, tokenId }) {
    const open = new Set(waiting.map((device) => device.id));
    for (const [id, card] of this.#cards) {
      if (open.has(id)) continue;
      card.remove();
      this.#cards.delete(id);
    }
    const fresh = waiting.filter((device) => !this.#cards.has(device.id));
    for (const device of fresh) {
      const card = this.#card(device, scopes);
      this.#cards.set(device.id, card);
      byId("waiting-devices").append(card);
    }
    this.#showPaired(paired, scopes.includes("admin"), tokenId);
    this.#menu.textContent = waiting.length ? `Conversations · ${waiting.length}` : "Conversations";
    this.#menu.title = waiting.length ? `${waiting.length} waiting for approval` : "";
    this.#root.hidden = !waiting.length && !paired.length;
    return fresh;
  }

  #showPaired(paired, mayRevoke, own) {
    const rows = paired.map((device) => this.#row(device, mayRevoke && device.id !== own, device.id === own));
    byId("paired-devices").replaceChildren(...rows);
    byId("paired-count").textContent = String(paired.length);
    byId("paired").hidden = !paired.length;
  }

  #card(device, scopes) {
    const offered = RIGHTS.filter(([, wanted]) => wanted.every((scope) => scopes.includes(scope)));
    const option = ([text], at) => make("option", { value: String(at) }, text);
    const rights = make("select", { "aria-label": "What the device may do" }, ...offered.map(option));
    const params = { code: device.id };
    const approve = () => ["devices.approve", { ...params, scopes: offered[Number(rights.value)][1] }];
    const code = make("p", { class: "device-code", id: `code-${device.id}` }, device.code);
    const until = new Date(device.expiresAt).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const facts = [device.platform, device.address, `until ${until}`].filter(Boolean).join(" · ");
    const problem = make("p", { class: "problem", role: "alert", hidden: true });
    const verdicts = [
      this.#button("Approve", "primary", problem, approve),
      this.#button("Reject", "", problem, () => ["devices.reject", params]),
    ];
    return make(
      "li",
      { class: "device", role: "group", "aria-labelledby": code.id },
      make("p", {}, "A device requests access. Its screen must show:"),
      code,
      make("p", { class: "faint" }, make("bdi", {}, shorten(device.name, 80)), ` · ${shorten(facts, 120)}`),
      rights,
      make("div", { class: "verdicts" }, ...verdicts),
      problem,
    );
  }

  #row(device, mayRevoke, isOwn) {
    const given = RIGHTS.find(([, wanted]) => wanted.join() === device.scopes.join());
    const rights = given ? given[0].toLowerCase() : `may ${device.scopes.join(", ")}`;
    const used = device.usedAt ? `used ${new Date(device.usedAt).toLocaleDateString()}` : "not used yet";
    const problem = make("p", { class: "problem", role: "alert", hidden: true });
    return make(
      "li",
      {},
      make("bdi", {}, shorten(device.name, 80)),
      make("span", { class: "faint" }, [isOwn ? "this device" : "", rights, used].filter(Boolean).join(" · ")),
      mayRevoke ? this.#button("Revoke", "", problem, () => ["devices.revoke", { id: device.id }]) : null,
      problem,
    );
  }

  /** A button for an action that runs once; if the gateway refuses it, the problem shows the reason. */
  #button(text, kind, problem, call) {
    const button = make("button", { type: "button", class: kind }, text);
    button.addEventListener("click", async () => {
      button.disabled = true;
      problem.hidden = true;
      try {
        await this.#act(...call());
      } catch (error) {
        problem.textContent = error.message;
        problem.hidden = false;
        button.disabled = false;
      }
    });
    return button;
  }
}
