// The chat page: signs in, follows one conversation, and shows what happens in it.

import { Approvals } from "./approvals.js";
import { Composer } from "./composer.js";
import { DevicePane } from "./devices.js";
import { Conversation, historyBefore, unfinishedFrom } from "./conversation.js";
import { byId, make, shorten } from "./dom.js";
import { SignIn, takeCode, forgetCredentials, keepCredentials, keptCredentials } from "./sign_in.js";
import { SetupCard } from "./setup.js";
import { Link, LinkLost, Refusal } from "./link.js";
import { Outbox } from "./outbox.js";
import { OWN_PREFIX, SessionPane, sessionName } from "./sessions.js";

const SESSION = "retinue.session";
const HISTORY = 200;
const MAX_READ_OUT = 1_000;
const SETTLE = 150;
const NOT_KNOWN_YET = "not known yet";
const FRESH = "The previous conversation was archived, and a new one was started.";

class Page {
  #signInForm = new SignIn((attempts, stay) => this.#signIn(attempts, stay), () => this.#signOut(""));
  #conversation = new Conversation(byId("log"), () => this.#who(), (runs, place) => this.#findAsked(runs, place));
  #composer = new Composer((text) => this.#send(text), () => this.#stop());
  #pane = new SessionPane((key) => this.#open(key));
  #approvals = new Approvals((...decided) => this.#decide(...decided), (key) => this.#elsewhere(key));
  #devices = new DevicePane((...call) => this.#link.call(...call), () => this.#attempting(() => this.#loadDevices()));
  #outbox = new Outbox(() => this.#link, (sent) => this.#accepted(sent));
  #setup = new SetupCard(
    (...call) => this.#answered(() => this.#link.call(...call)),
    (text) => this.#send(text),
    () => this.#open(this.#key),
  );
  #link = null;
  #hello = null;
  #agents = [];
  #rows = [];
  #introduction = { showsThinking: false, commands: [], model: null };
  #attempt = { credentials: {}, others: [], stay: true, isTyped: false };

  #key = sessionStorage.getItem(SESSION);
  #sessionId = null;
  #epoch = "";
  #seq = 0;
  #buffer = null;
  #opening = 0;
  #asked = 0;
  #lastCommand = "";
  #listTimer = 0;

  constructor() {
    byId("new").addEventListener("click", () => this.#begin());
    byId("sign-out").addEventListener("click", () => this.#signOut(""));
    const code = takeCode();
    if (code === null) this.#connect(keptCredentials());
    else this.#signIn([{ pairingCode: code }], true);
  }

  #signIn(attempts, stay) {
    this.#attempt = { others: attempts.slice(1), stay, isTyped: true };
    this.#connect(attempts[0]);
  }

  #connect(credentials) {
    this.#link?.close();
    this.#attempt.credentials = credentials;
    this.#link = new Link(credentials, {
      greeted: (hello) => this.#greeted(hello),
      heard: (frame) => this.#heard(frame),
      lost: (reason) => this.#lost(`${reason} Trying again …`),
      waits: (code) => this.#signInForm.wait(code),
      refused: (refusal) => this.#refused(refusal),
    });
  }

  #lost(problem) {
    if (byId("chat-page").hidden) this.#signInForm.open(problem);
    else this.#showState(problem);
  }

  #refused(refusal) {
    const next = this.#attempt.others.shift();
    if (next) {
      this.#connect(next);
      return;
    }
    const wasAsked = this.#attempt.isTyped || Object.keys(this.#attempt.credentials).length > 0;
    if (refusal.code === "unauthenticated") forgetCredentials();
    this.#signOut(wasAsked ? refusal.message : "", refusal.code !== "unauthenticated");
  }

  #signOut(problem, keeps = false) {
    if (!keeps) forgetCredentials();
    this.#link?.close();
    this.#opening += 1;
    this.#conversation.clear();
    this.#approvals.show([]);
    this.#devices.show({ waiting: [], paired: [] }, { scopes: [] });
    this.#setup.hide();
    byId("chat-page").hidden = true;
    this.#signInForm.open(problem);
  }

  async #greeted(hello) {
    this.#hello = hello;
    if (this.#attempt.isTyped) {
      keepCredentials(hello.token ? { token: hello.token } : this.#attempt.credentials, this.#attempt.stay);
      this.#attempt = { credentials: keptCredentials(), others: [], stay: true, isTyped: false };
    }
    this.#signInForm.close();
    byId("chat-page").hidden = false;
    this.#showState("");
    this.#composer.bar(this.#may("write") ? "" : "This device can only read.");
    await this.#attempting(async () => {
      await this.#link.call("sessions.subscribe", { gateway: true });
      await this.#loadAgents();
      await this.#resume();
      await this.#loadApprovals();
      await this.#loadDevices();
      if (this.#may("admin")) await this.#setup.load();
      await this.#outbox.sendAll();
    });
  }

  /** Resume after a lost connection; if events are no longer available, read the conversation again. */
  async #resume() {
    if (this.#key && !this.#buffer && this.#epoch === this.#hello.epoch) {
      const params = { sessionKey: this.#key, after: this.#seq, epoch: this.#epoch };
      const joined = await this.#link.call("sessions.subscribe", params);
      if (!joined.gap) {
        await this.#loadSessions();
        return;
      }
    }
    await this.#open(this.#key);
  }

  #begin() {
    const agent = byId("agent").value || this.#agentId();
    const name = `${OWN_PREFIX}${Date.now().toString(36)}${Math.floor(Math.random() * 1296).toString(36)}`;
    this.#open(`agent:${agent}:${name}`);
  }

  #open(key) {
    const opening = ++this.#opening;
    return this.#attempting(async () => {
      const left = this.#key;
      if (left && left !== key) await this.#link.call("sessions.unsubscribe", { sessionKey: left });
      const found = await this.#find(key);
      if (opening !== this.#opening) return;
      this.#key = found.key;
      sessionStorage.setItem(SESSION, found.key);
      this.#buffer = [];
      const params = { sessionKey: found.key };
      const joining = this.#link.call("sessions.subscribe", { ...params, after: 0, epoch: this.#hello.epoch });
      const introducing = this.#link.call("sessions.introduce", params);
      const joined = await joining;
      const history = await this.#link.call("chat.history", { ...params, limit: HISTORY });
      const introduction = await introducing;
      if (opening !== this.#opening) return;
      this.#introduction = introduction;
      this.#draw(history, joined);
      await this.#loadSessions();
      await this.#catchUp(history.entries);
    });
  }

  /** A conversation, or the main one if there is none of that name, for example because its agent was removed. */
  async #find(key) {
    if (!key) return this.#link.call("sessions.get");
    try {
      return await this.#link.call("sessions.get", { sessionKey: key });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.#showState(error.message);
      return this.#link.call("sessions.get");
    }
  }

  #draw(history, joined) {
    const events = unfinishedFrom(this.#buffer, history.seq);
    this.#buffer = null;
    this.#epoch = history.epoch;
    this.#seq = Math.max(joined.seq, events.at(-1)?.seq ?? 0);
    this.#sessionId = history.sessionId;
    this.#showIdentity();
    const entries = events.length ? historyBefore(history.entries, events) : history.entries;
    this.#conversation.showHistory(entries, history.total, history.notes);
    if (!history.total && this.#introduction.advice) this.#conversation.note(this.#introduction.advice);
    if (this.#introduction.caution) this.#conversation.note(this.#introduction.caution);
    const running = events.flatMap((frame) => frame.payload.runs);
    this.#outbox.ended(history.entries.map((entry) => entry.run).filter((run) => run && !running.includes(run)));
    for (const own of this.#outbox.of(this.#key)) this.#conversation.putBack(own);
    for (const frame of events) this.#apply(frame);
    this.#showRunning();
    this.#pane.fold();
    this.#composer.commands = this.#introduction.commands;
    this.#composer.focus();
  }

  /** Show missed answers that the history does not contain, and confirm all of them. */
  async #catchUp(entries) {
    if (!this.#may("write")) return;
    const { answers } = await this.#link.call("agent.missed", { sessionKey: this.#key });
    for (const { outbound } of answers) {
      const isShown = entries.some((entry) => entry.run === outbound.runId);
      if (!isShown && !outbound.silent) this.#conversation.note(outbound.error || outbound.text);
      await this.#link.call("agent.confirm", { runId: outbound.runId });
    }
  }

  async #loadSessions() {
    const { sessions } = await this.#link.call("sessions.list", { limit: HISTORY });
    this.#rows = sessions;
    const current = sessions.find((row) => row.key === this.#key);
    if (current) current.running = this.#isRunning(); // this page knows it earlier than the list
    const shown = current || !this.#key ? sessions : [{ key: this.#key, agent: this.#agentId() }, ...sessions];
    this.#pane.show(shown, this.#key, this.#agents.length > 1 ? this.#agents : []);
    if (!current || this.#buffer || this.#conversation.isRunning) return;
    if (this.#sessionId && current.sessionId !== this.#sessionId) {
      const text = this.#lastCommand || FRESH;
      this.#lastCommand = "";
      await this.#open(this.#key);
      this.#conversation.note(text);
    }
    this.#sessionId = current.sessionId;
  }

  #loadSessionsSoon() {
    this.#listTimer ||= setTimeout(() => {
      this.#listTimer = 0;
      this.#attempting(() => this.#loadSessions());
    }, SETTLE);
  }

  async #loadAgents() {
    this.#agents = (await this.#link.call("agents.list")).agents;
    const select = byId("agent");
    select.hidden = this.#agents.length < 2;
    const option = ({ id, emoji, name }) => make("option", { value: id }, `${emoji} ${name}`.trim());
    select.replaceChildren(...this.#agents.map(option));
    this.#showIdentity();
  }

  #agentId() {
    const [kind, agent] = (this.#key ?? "").split(":");
    return kind === "agent" ? agent : (this.#agents.find((each) => each.isDefault)?.id ?? "main");
  }

  #who() {
    const agent = this.#agents.find((each) => each.id === this.#agentId());
    const { showsThinking } = this.#introduction;
    return { name: agent?.name ?? "Retinue", emoji: agent?.emoji ?? "", showsThinking };
  }

  #showIdentity() {
    const { name, emoji } = this.#who();
    byId("emoji").textContent = emoji;
    byId("name").textContent = name;
    byId("model").textContent = this.#introduction.model ?? "";
    document.title = `${emoji} ${shorten(name, 60)}`.trim();
  }

  #send(text) {
    this.#outbox.send(this.#key, text, this.#conversation.addOwn(text));
    this.#showRunning();
  }

  #accepted({ run, own, sessionKey }) {
    if (sessionKey === this.#key) this.#conversation.noteRun(run, own);
    this.#showRunning();
  }

  #stop() {
    this.#attempting(() => this.#link.call("chat.abort", { sessionKey: this.#key }));
  }

  /** A turn answers messages that another client sent: find them in the history. */
  async #findAsked(runs, place) {
    await this.#outbox.settled();
    const key = this.#key;
    if (runs.some((run) => this.#outbox.knows(run))) return;
    await this.#attempting(async () => {
      const { entries } = await this.#link.call("chat.history", { sessionKey: key, limit: 20 });
      const asked = entries.find((entry) => runs.includes(entry.run) && entry.message?.role === "user");
      if (asked && key === this.#key) place(asked);
    });
  }

  #heard(frame) {
    if (frame.stream === "gateway") this.#heardOfGateway(frame);
    else if (frame.stream !== this.#key || frame.event !== "turn") return;
    else if (this.#buffer) this.#buffer.push(frame);
    else if (frame.seq > this.#seq) this.#apply(frame);
  }

  #heardOfGateway({ event, payload }) {
    if (event === "sessions.changed") this.#loadSessionsSoon();
    if (event === "approvals.changed") this.#attempting(() => this.#loadApprovals());
    if (event === "devices.changed") this.#attempting(() => this.#loadDevices());
    if (event === "config.changed") this.#attempting(() => this.#loadAgents());
    if (event === "shutdown") this.#showState(`The gateway is shutting down: ${payload.reason}.`);
  }

  #apply(frame) {
    this.#seq = frame.seq;
    const { runs, event } = frame.payload;
    const end = this.#conversation.apply(runs, event);
    if (event.type === "turn_started") this.#outbox.begun(runs);
    if (end) this.#finished(runs, end);
    this.#showRunning();
  }

  #finished(runs, { own, isCommand, text }) {
    const sent = this.#outbox.ended(runs);
    this.#announce(`${this.#who().name}: ${text.slice(0, MAX_READ_OUT)}`);
    this.#attempting(async () => {
      if (isCommand) {
        this.#lastCommand = text;
        // A command may have started a new conversation before the page knew the key of the first.
        this.#sessionId ||= NOT_KNOWN_YET;
        this.#loadSessionsSoon();
        return;
      }
      for (const run of own) await this.#link.call("agent.confirm", { runId: run });
      if (sent) await this.#nameSession(sent);
    });
  }

  /** Label a conversation that was started here with its first words. */
  async #nameSession(words) {
    const row = this.#rows.find((each) => each.key === this.#key);
    if (!this.#key.includes(`:${OWN_PREFIX}`) || row?.label) return;
    await this.#link.call("sessions.patch", { sessionKey: this.#key, label: shorten(words, 60) });
  }

  #isRunning() {
    return this.#conversation.isRunning || this.#outbox.isWaiting(this.#key);
  }

  #showRunning() {
    const isRunning = this.#isRunning();
    this.#composer.isRunning = isRunning && this.#may("write");
    byId("log").setAttribute("aria-busy", String(isRunning));
  }

  async #loadApprovals() {
    if (!this.#may("approve")) return;
    const asked = ++this.#asked;
    const { approvals } = await this.#link.call("approvals.list");
    if (asked !== this.#asked) return; // a later list was requested
    for (const request of this.#approvals.show(approvals)) this.#announce(`Approval requested: ${request.title}`);
  }

  async #loadDevices() {
    if (!this.#may("pair")) return;
    const fresh = this.#devices.show(await this.#link.call("devices.list"), this.#hello);
    for (const { code } of fresh) this.#announce(`A device requests access: ${code}`);
  }

  async #decide(request, verdict, reason) {
    await this.#link.call("approvals.resolve", { id: request.id, verdict, reason, binding: request.binding });
  }

  #elsewhere(key) {
    if (key === this.#key) return null;
    const row = this.#rows.find((each) => each.key === key);
    return row ? sessionName(row) : shorten(key, 80);
  }

  #may(scope) {
    return this.#hello?.scopes.includes(scope) ?? false;
  }

  #showState(text) {
    byId("state").textContent = text;
  }

  #announce(text) {
    byId("told").textContent = text;
  }

  /** The result of a call, or null if it was refused, which is shown. */
  async #answered(act) {
    let result = null;
    await this.#attempting(async () => {
      result = await act();
    });
    return result;
  }

  /** Call the gateway and show a refusal; a lost connection is shown by the code that reconnects. */
  async #attempting(act) {
    try {
      await act();
    } catch (error) {
      if (error instanceof LinkLost) return;
      this.#showState(error.message);
    }
  }
}

new Page();
