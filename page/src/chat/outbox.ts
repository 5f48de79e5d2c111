// Messages that are being sent. Each has its own key, so that a message that is sent again is processed once.
import type { Picture } from "../generated/wire";
import { LinkLost, Refusal } from "../core/link";
import { call, isOnline } from "../core/gateway";
import { randomKey } from "../core/text";
import type { OwnMessage } from "./conversation";

const WAITS = "Waiting for the connection …";

interface Message {
  sessionKey: string;
  text: string;
  images: Picture[];
  own: OwnMessage;
  key: string;
}

export interface Sent {
  run: string;
  own: OwnMessage;
  sessionKey: string;
}

/** `accepted` is called when a message was stored. */
export class Outbox {
  #accepted: (sent: Sent) => void;
  #unsent = new Set<Message>();
  #waiting = new Map<string, Message>();
  #ended = new Set<string>();
  #deliveries = new Set<Promise<void>>();

  constructor(accepted: (sent: Sent) => void) {
    this.#accepted = accepted;
  }

  send(sessionKey: string, text: string, images: Picture[], own: OwnMessage): void {
    const message = { sessionKey, text, images, own, key: randomKey() };
    this.#unsent.add(message);
    this.#track(message);
  }

  /** Send the messages that could not be sent before, in order. */
  async sendAll(): Promise<void> {
    for (const message of [...this.#unsent]) await this.#deliver(message);
  }

  /** The messages to a session that have no turn yet. */
  of(sessionKey: string): OwnMessage[] {
    const messages = [...this.#waiting.values(), ...this.#unsent];
    return messages.filter((message) => message.sessionKey === sessionKey).map(({ own }) => own);
  }

  get unsent(): number {
    return this.#unsent.size;
  }

  isWaiting(sessionKey: string): boolean {
    return [...this.#waiting.values()].some((message) => message.sessionKey === sessionKey);
  }

  waitsFor(run: string): boolean {
    return this.#waiting.has(run);
  }

  knows(run: string): boolean {
    return this.#waiting.has(run) || this.#ended.has(run);
  }

  /** Resolves when no message is being sent. */
  settled(): Promise<unknown> {
    return Promise.allSettled([...this.#deliveries]);
  }

  begun(runs: string[]): void {
    for (const run of runs) this.#waiting.get(run)?.own.showState("");
  }

  /** These runs ended; returns the text of one that was sent from here, if there is one. */
  ended(runs: string[]): string {
    let words = "";
    for (const run of runs) {
      words ||= this.#waiting.get(run)?.text ?? "";
      this.#waiting.delete(run);
      this.#ended.add(run);
    }
    return words;
  }

  #track(message: Message): void {
    const delivery: Promise<void> = this.#deliver(message).finally(() => this.#deliveries.delete(delivery));
    this.#deliveries.add(delivery);
  }

  async #deliver(message: Message): Promise<void> {
    const { own, text, sessionKey, images, key } = message;
    own.showState(isOnline.value ? "Sending …" : WAITS);
    if (!isOnline.value) return;
    try {
      const params = { message: text, sessionKey, idempotencyKey: key, ...(images.length ? { images } : {}) };
      const { runId } = await call("chat.send", params);
      this.#unsent.delete(message);
      own.showState("");
      if (!this.#ended.has(runId)) this.#waiting.set(runId, message);
      this.#accepted({ run: runId, own, sessionKey });
    } catch (error) {
      if (error instanceof LinkLost || (error instanceof Refusal && error.code === "shutting_down")) {
        own.showState(WAITS);
        return;
      }
      this.#unsent.delete(message);
      own.fail((error as Error).message, () => {
        this.#unsent.add(message);
        this.#track(message);
      });
    }
  }
}
