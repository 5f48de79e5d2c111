// Messages that are being sent. Each has its own key, so that a message that is sent again is processed once.

import { LinkLost } from "./link.js";

const WAITS = "Waiting for the connection …";

/** `link()` returns the current link; `accepted({run, own, sessionKey})` is called when a message was stored. */
export class Outbox {
  #link;
  #accepted;
  #unsent = new Set();
  #waiting = new Map();
  #ended = new Set();
  #deliveries = new Set();

  constructor(link, accepted) {
    this.#link = link;
    this.#accepted = accepted;
  }

  send(sessionKey, text, own) {
    const message = { sessionKey, text, own, key: randomKey() };
    this.#unsent.add(message);
    this.#track(message);
  }

  /** Send the messages that could not be sent before, in order. */
  async sendAll() {
    for (const message of [...this.#unsent]) await this.#deliver(message);
  }

  /** The messages to a session that have no turn yet. */
  of(sessionKey) {
    const messages = [...this.#waiting.values(), ...this.#unsent];
    return messages.filter((message) => message.sessionKey === sessionKey).map(({ own }) => own);
  }

  isWaiting(sessionKey) {
    return [...this.#waiting.values()].some((message) => message.sessionKey === sessionKey);
  }

  knows(run) {
    return this.#waiting.has(run) || this.#ended.has(run);
  }

  /** Resolves when no message is being sent. */
  settled() {
    return Promise.allSettled([...this.#deliveries]);
  }

  begun(runs) {
    for (const run of runs) this.#waiting.get(run)?.own.showState("");
  }

  /** These runs ended; returns the text of one that was sent from here, if there is one. */
  ended(runs) {
    let words = "";
    for (const run of runs) {
      words ||= this.#waiting.get(run)?.text ?? "";
      this.#waiting.delete(run);
      this.#ended.add(run);
    }
    return words;
  }

  #track(message) {
    const delivery = this.#deliver(message).finally(() => this.#deliveries.delete(delivery));
    this.#deliveries.add(delivery);
  }

  async #deliver(message) {
    const { own } = message;
    const link = this.#link();
    own.showState(link.isUp ? "Sending …" : WAITS);
    if (!link.isUp) return;
    try {
      const params = { message: message.text, sessionKey: message.sessionKey, idempotencyKey: message.key };
      const { runId } = await link.call("chat.send", params);
      this.#unsent.delete(message);
      own.showState("");
      if (!this.#ended.has(runId)) this.#waiting.set(runId, message);
      this.#accepted({ run: runId, own, sessionKey: message.sessionKey });
    } catch (error) {
      if (error instanceof LinkLost || error.code === "shutting_down") {
        own.showState(WAITS);
        return;
      }
      this.#unsent.delete(message);
      own.fail(error.message, () => {
        this.#unsent.add(message);
        this.#track(message);
      });
    }
  }
}

function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
