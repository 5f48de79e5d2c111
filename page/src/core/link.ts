// The connection to the gateway: one WebSocket at a time, renewed until it is closed or the gateway refuses it.
import type { Credentials, Event, Failure, Hello, Methods } from "../generated/wire";

const PROTOCOL = 1;
const FIRST_PAUSE = 250;
const LONGEST_PAUSE = 5_000;
const PATIENCE = 8_000;
const REVOKED = 4001;

/** The gateway refused a request; the message is the reason. */
export class Refusal extends Error {
  readonly code: string;
  readonly retryable: boolean;
  readonly retryAfter: number;
  readonly details: Record<string, unknown>;

  constructor(failure: Pick<Failure, "code" | "message"> & Partial<Failure>) {
    super(failure.message);
    this.code = failure.code;
    this.retryable = Boolean(failure.retryable);
    this.retryAfter = failure.retryAfterMs ?? 0;
    this.details = failure.details ?? {};
  }
}

/** The connection ended before the response arrived. */
export class LinkLost extends Error {
  constructor() {
    super("The connection to the gateway was lost.");
  }
}

export type MethodName = keyof Methods;
export type Call = <M extends MethodName>(method: M, params?: Methods[M]["params"]) => Promise<Methods[M]["result"]>;

export interface LinkListener {
  greeted(hello: Hello): void;
  heard(event: Event): void;
  lost(reason: string): void;
  /** The owner must approve this device; the person compares the code. */
  waits(code: string): void;
  /** The gateway refused the sign-in, which ends the link. */
  refused(refusal: Refusal): void;
}

interface Waiting {
  resolve(payload: any): void;
  reject(error: Error): void;
}

export class Link {
  #credentials: Credentials;
  #listener: LinkListener;
  #socket: WebSocket | null = null;
  #waiting = new Map<string, Waiting>();
  #number = 0;
  #pause = FIRST_PAUSE;
  #timer = 0;
  #ended = false;
  #isUp = false;
  #reason = "";

  constructor(credentials: Credentials, listener: LinkListener) {
    this.#credentials = credentials;
    this.#listener = listener;
    window.addEventListener("online", this.#awake);
    document.addEventListener("visibilitychange", this.#awake);
    this.#open();
  }

  get isUp(): boolean {
    return this.#isUp;
  }

  /** Send a request; rejects with a `Refusal` or with `LinkLost`. */
  call: Call = (method, params = {}) => {
    if (!this.#isUp) return Promise.reject(new LinkLost());
    return this.#request(method, params);
  };

  close(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
    window.removeEventListener("online", this.#awake);
    document.removeEventListener("visibilitychange", this.#awake);
    this.#socket?.close();
    this.#drop();
  }

  #open(): void {
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
      if (socket === this.#socket) this.#closed(close.code);
    });
  }

  async #introduce(socket: WebSocket): Promise<void> {
    const client = { name: deviceName(), platform: navigator.platform.slice(0, 60), asks: true };
    const params = { minProtocol: PROTOCOL, maxProtocol: PROTOCOL, client, auth: this.#credentials };
    try {
      const hello: Hello = await this.#request("connect", params);
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

  #request(method: string, params: object): Promise<any> {
    const id = String(++this.#number);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#socket!.send(JSON.stringify({ type: "req", id, method, params }));
    });
  }

  #read(frame: any): void {
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

  #closed(code: number): void {
    this.#drop();
    if (this.#ended) return;
    if (code === REVOKED) {
      this.close();
      this.#listener.refused(new Refusal({ code: "unauthenticated", message: "This sign-in was revoked." }));
      return;
    }
    this.#listener.lost(this.#reason || "The connection to the gateway was lost.");
    this.#reason = "";
    this.#timer = window.setTimeout(() => this.#open(), this.#pause * (0.75 + Math.random() / 2));
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }

  #drop(): void {
    this.#isUp = false;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const each of waiting) each.reject(new LinkLost());
  }

  /** After sleep, a device may have a connection that is dead but not closed. */
  #awake = (): void => {
    if (this.#ended || document.visibilityState === "hidden") return;
    if (!this.#isUp) {
      if (this.#socket?.readyState === WebSocket.CLOSED) this.#open();
      return;
    }
    const socket = this.#socket;
    const late = setTimeout(() => {
      if (socket !== this.#socket) return;
      this.#socket = null;
      socket?.close();
      this.#closed(1006);
    }, PATIENCE);
    this.call("health")
      .catch(() => {})
      .finally(() => clearTimeout(late));
  };
}

function deviceName(): string {
  const { userAgentData } = navigator as { userAgentData?: { brands?: { brand: string }[] } };
  return `page in ${userAgentData?.brands?.at(-1)?.brand ?? "a browser"}`.slice(0, 100);
}
