// The connection to the gateway: one WebSocket at a time, renewed until it is closed or the gateway refuses it.

const PROTOCOL = 1;
const FIRST_PAUSE = 250;
const LONGEST_PAUSE = 5_000;
const PATIENCE = 8_000;
const REVOKED = 4001;

/** The gateway refused a request; the message is the reason. */
export class Refusal extends Error {
  constructor(failure) {
    super(failure.message);
    this.code = failure.code;
    this.retryable = Boolean(failure.retryable);
    this.retryAfter = failure.retryAfterMs ?? 0;
  }
}

/** The connection ended before the response arrived. */
export class LinkLost extends Error {}

/**
 * `listener` has `greeted(hello)`, `heard(event)`, `lost(reason)`, `waits(code)` while the owner must approve this
 * device, and `refused(refusal)`, which ends the link.
 */
export class Link {
  #credentials;
  #listener;
  #socket = null;
  #waiting = new Map();
  #number = 0;
  #pause = FIRST_PAUSE;
  #timer = 0;
  #ended = false;
  #isUp = false;
  #reason = "";

  constructor(credentials, listener) {
    this.#credentials = credentials;
    this.#listener = listener;
    window.addEventListener("online", this.#awake);
    document.addEventListener("visibilitychange", this.#awake);
    this.#open();
  }

  get isUp() {
    return this.#isUp;
  }

  /** Send a request; rejects with a `Refusal` or with `LinkLost`. */
  call(method, params = {}) {
    if (!this.#isUp) return Promise.reject(new LinkLost("There is no connection to the gateway."));
    return this.#request(method, params);
  }

  close() {
    this.#ended = true;
    clearTimeout(this.#timer);
    window.removeEventListener("online", this.#awake);
    document.removeEventListener("visibilitychange", this.#awake);
    this.#socket?.close();
    this.#drop();
  }

  #open() {
    clearTimeout(this.#timer);
    const address = new URL("ws", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    this.#socket = socket;
    socket.addEventListener("open", () => this.#introduce(socket));
    socket.addEventListener("message", (message) => {
      if (socket === this.#socket) this.#read(JSON.parse(message.data));
    });
    socket.addEventListener("close", (close) => {
      if (socket === this.#socket) this.#closed(close);
    });
  }

  async #introduce(socket) {
    const client = { name: deviceName(), platform: navigator.platform.slice(0, 60), asks: true };
    const params = { minProtocol: PROTOCOL, maxProtocol: PROTOCOL, client, auth: this.#credentials };
    try {
      const hello = await this.#request("connect", params);
      if (hello.token) this.#credentials = { token: hello.token };
      this.#pause = FIRST_PAUSE;
      this.#isUp = true;
      this.#listener.greeted(hello);
    } catch (error) {
      if (!(error instanceof Refusal)) return; // the connection was lost, which the close event handles
      if (error.retryable) {
        this.#pause = Math.max(this.#pause, error.retryAfter);
        this.#reason = error.message; // the gateway closes now
        return;
      }
      socket.close();
      this.close();
      this.#listener.refused(error);
    }
  }

  #request(method, params) {
    const id = String(++this.#number);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#socket.send(JSON.stringify({ type: "req", id, method, params }));
    });
  }

  #read(frame) {
    if (frame.type === "event") {
      if (frame.event === "pairing.requested") this.#listener.waits(frame.payload.code);
      else this.#listener.heard(frame);
      return;
    }
    const waiting = this.#waiting.get(frame.id);
    this.#waiting.delete(frame.id);
    if (frame.ok) waiting?.resolve(frame.payload ?? {});
    else waiting?.reject(new Refusal(frame.error));
  }

  #closed(close) {
    this.#drop();
    if (this.#ended) return;
    if (close.code === REVOKED) {
      this.close();
      this.#listener.refused(new Refusal({ code: "unauthenticated", message: "This sign-in was revoked." }));
      return;
    }
    this.#listener.lost(this.#reason || "The connection to the gateway was lost.");
    this.#reason = "";
    this.#timer = setTimeout(() => this.#open(), this.#pause * (0.75 + Math.random() / 2));
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }

  #drop() {
    this.#isUp = false;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const each of waiting) each.reject(new LinkLost("The connection to the gateway was lost."));
  }

  /** After sleep, a device may have a connection that is dead but not closed. */
  #awake = () => {
    if (this.#ended || document.visibilityState === "hidden") return;
    if (!this.#isUp) {
      if (this.#socket.readyState === WebSocket.CLOSED) this.#open();
      return;
    }
    const socket = this.#socket;
    const late = setTimeout(() => {
      if (socket !== this.#socket) return;
      this.#socket = null;
      socket.close();
      this.#closed({ code: 1006 });
    }, PATIENCE);
    this.call("health")
      .catch(() => {})
      .finally(() => clearTimeout(late));
  };
}

function deviceName() {
  const browser = navigator.userAgentData?.brands?.at(-1)?.brand ?? "a browser";
  return `page in ${browser}`.slice(0, 100);
}
