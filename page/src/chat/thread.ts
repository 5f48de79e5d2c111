// The open conversation: reads it, follows it, resumes it after a lost connection, and sends to it.
import { computed, signal } from "@preact/signals";
import type { Event, FoundSession, History, Introduction, Picture, Subscribed, TurnPayload } from "../generated/wire";
import { attempting, call, hello, isOnline, listen, may, onGreeting, onSignOut, trouble } from "../core/gateway";
import { Refusal } from "../core/link";
import { notify } from "../core/notifications";
import { drafts } from "../core/preferences";
import { go, rename, route } from "../core/router";
import {
  afterSessionsLoad,
  agentOf,
  announcement,
  defaultAgent,
  loadApprovals,
  loadDevices,
  loadSessions,
  loadSessionsSoon,
  markSeen,
  OWN_PREFIX,
  sessions,
} from "../core/stores";
import { shorten } from "../core/text";
import {
  Conversation,
  type Ending,
  type Entry,
  historyBefore,
  type Identity,
  type PersonItem,
  unfinishedFrom,
} from "./conversation";
import type { ShownPicture } from "./content";
import { Outbox } from "./outbox";

const HISTORY = 200;
/** With more items than this, the conversation is read again when a turn ends, so that the tab does not grow. */
const MAX_ITEMS = 400;
const WATCH_MS = 1_000;
const MAX_WAIT_MS = 15_000;
const MAX_READ_OUT = 1_000;
const NOT_KNOWN_YET = "not known yet";
const FRESH = "The previous conversation was archived, and a new one was started.";

const NO_INTRODUCTION: Introduction = {
  name: "",
  workspace: "",
  messages: 0,
  model: null,
  because: "",
  howToChange: "",
  isTiny: false,
  advice: "",
  showsThinking: false,
  verbose: "off",
  commands: [],
  commandRows: [],
  thinking: null,
  caution: "",
  window: 0,
  used: 0,
};

/** Give a conversation the text that was written while it had another name, or none yet. */
function adoptDraft(name: string, key: string): void {
  const { [name]: early, ...rest } = drafts.value;
  if (early) drafts.value = { ...rest, [key]: [rest[key], early].filter(Boolean).join("\n") };
}

export class Thread {
  readonly key = signal<string | null>(null);
  /** The conversation that is open or being opened: what is written meanwhile belongs to it. */
  readonly target = signal<string | null>(null);
  readonly introduction = signal(NO_INTRODUCTION);
  /** Whether a message can be sent now to the conversation that is shown. */
  readonly isReady = computed(
    () => this.key.value !== null && this.key.value === this.target.value && !this.isLoading.value,
  );
  /** Whether the history is being read; false again if that failed. */
  readonly isLoading = signal(true);
  /** The message that is being changed: what is sent next goes on from there, in a branch. */
  readonly editing = signal<{ key: string; before: string } | null>(null);
  /** Counts how often the whole conversation was drawn; what contains it is then rendered again, see `#draw`. */
  readonly drawn = signal(0);
  /** Why the conversation could not be read. */
  readonly problem = signal("");
  /** Whether the person reads older messages, which must then stay. */
  readonly readsBack = signal(false);
  readonly conversation = new Conversation(
    () => this.identity.value,
    (runs, place) => this.#findAsked(runs, place),
  );
  /** Counts whenever messages that are sent change; they are not signals of their own. */
  #sending = signal(0);
  readonly isRunning = computed(() => {
    this.#sending.value;
    return this.conversation.running.value !== null || this.#outbox.isWaiting(this.key.value ?? "");
  });
  readonly unsent = computed(() => {
    this.#sending.value;
    return this.#outbox.unsent;
  });
  readonly agentId = computed(() => {
    const [kind, agent] = (this.key.value ?? "").split(":");
    return kind === "agent" && agent ? agent : defaultAgent.value;
  });
  readonly identity = computed<Identity>(() => {
    const agent = agentOf(this.agentId.value);
    const { showsThinking } = this.introduction.value;
    return { name: agent?.name ?? "Retinue", emoji: agent?.emoji ?? "", showsThinking };
  });

  #outbox = new Outbox((sent) => {
    if (sent.sessionKey === this.key.value) this.conversation.noteRun(sent.run, sent.own);
    this.#sending.value += 1;
    void this.#watch(sent.run, sent.sessionKey);
  });
  #sessionId: string | null = null;
  #epoch = "";
  #seq = 0;
  #buffer: Event[] | null = null;
  #opening = 0;
  #lastCommand = "";

  constructor() {
    onGreeting(() => this.#greeted());
    onSignOut(() => {
      this.#opening += 1;
      this.key.value = null;
      this.target.value = null;
      this.conversation.clear();
    });
    afterSessionsLoad(() => this.#sessionsLoaded());
    listen((frame) => this.#heard(frame));
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible" && route.peek().view === "chat" && this.key.peek()) markSeen(this.key.peek()!);
    });
    route.subscribe(({ view, subject }) => {
      // Without a session in the address, the open one stays; the empty address is the main one.
      const isOther = subject ? subject !== this.key.peek() : location.hash === "";
      if (view === "chat" && isOnline.peek() && this.key.peek() && isOther) void this.open(subject || null);
    });
  }

  /** The number of the last opening of a conversation. */
  get opening(): number {
    return this.#opening;
  }

  /** Start another conversation with an agent. */
  begin(agent = this.agentId.value): void {
    const name = `${OWN_PREFIX}${Date.now().toString(36)}${Math.floor(Math.random() * 1296).toString(36)}`;
    go("chat", `agent:${agent}:${name}`);
  }

  send(text: string, images: Picture[] = []): void {
    const key = this.key.value;
    if (!key) return;
    const pictures: ShownPicture[] = images.map(({ mediaType, data }) => ({ type: mediaType, data }));
    this.#outbox.send(key, text, images, this.conversation.addOwn(text, pictures));
    this.#sending.value += 1;
  }

  /** Change a message; without a place in the transcript, the text is only sent again. */
  edit({ entry, run, own }: PersonItem): void {
    const before = entry ?? run ?? own?.run ?? null;
    const key = this.key.value;
    this.editing.value = key && before ? { key, before } : null;
  }

  /** Send a changed message in a branch that has everything before it; false if there is none to be made. */
  async branch(text: string, images: Picture[]): Promise<boolean> {
    const from = this.editing.value;
    if (!from || from.key !== this.key.value) return false;
    const fork = await attempting(() => call("sessions.fork", { sessionKey: from.key, before: from.before }));
    if (!fork) return false;
    this.editing.value = null;
    await this.open(fork.sessionKey);
    go("chat", fork.sessionKey);
    this.send(text, images);
    return true;
  }

  stop(): void {
    void attempting(() => call("chat.abort", { sessionKey: this.key.value }));
  }

  async patch(change: { model?: string | null; thinking?: any; verbose?: any; reasoning?: any; label?: string | null }) {
    const sessionKey = this.key.value;
    await attempting(async () => {
      await call("sessions.patch", { sessionKey, ...change });
      await this.#introduce(sessionKey);
    });
  }

  /** Show the messages before the first one that is shown. */
  async showEarlier(): Promise<void> {
    const sessionKey = this.key.value;
    const before = this.conversation.earlier.value;
    await attempting(async () => {
      // Messages that arrived since count, too: what is skipped is what follows the first message that is shown.
      const { total } = await call("chat.history", { sessionKey, limit: 1 });
      const history = await call("chat.history", { sessionKey, limit: HISTORY, skip: Math.max(0, total - before) });
      if (sessionKey !== this.key.value || before !== this.conversation.earlier.value) return;
      const left = history.entries.length ? Math.max(0, before - history.entries.length) : 0;
      this.conversation.prepend(history.entries, left, history.notes as any);
    });
  }

  async open(key: string | null): Promise<void> {
    const opening = ++this.#opening;
    this.target.value = key;
    this.isLoading.value = true;
    this.problem.value = "";
    await attempting(async () => {
      try {
        await this.#read(key, opening);
      } catch (error) {
        if (opening === this.#opening && error instanceof Refusal) this.problem.value = error.message;
        throw error;
      }
    });
    if (opening === this.#opening) this.isLoading.value = false;
  }

  async #read(key: string | null, opening: number): Promise<void> {
    const left = this.key.value;
    if (left && left !== key) await call("sessions.unsubscribe", { sessionKey: left });
    const found = await this.#find(key);
    if (opening !== this.#opening) return;
    if (left !== found.key) this.conversation.clear();
    if (this.target.value !== found.key) adoptDraft(this.target.value ?? "", found.key);
    this.target.value = found.key;
    this.key.value = found.key;
    this.#buffer = [];
    const params = { sessionKey: found.key };
    const joined = await call("sessions.subscribe", { ...params, after: 0, epoch: hello.value!.epoch });
    const reading = call("chat.history", { ...params, limit: HISTORY });
    const [history] = await Promise.all([reading, this.#introduce(found.key)]);
    if (opening !== this.#opening) return;
    this.#draw(history, joined);
    this.isLoading.value = false;
    await loadSessions();
    await this.#catchUp(history);
  }

  async #introduce(sessionKey: string | null): Promise<void> {
    const introduction = await call("sessions.introduce", { sessionKey });
    if (sessionKey === this.key.value) this.introduction.value = introduction;
  }

  async #greeted(): Promise<void> {
    await this.#resume();
    await loadApprovals();
    await loadDevices();
    await this.#outbox.sendAll();
  }

  /** Resume after a lost connection; if events are no longer available, read the conversation again. */
  async #resume(): Promise<void> {
    const sessionKey = this.key.value;
    if (sessionKey && !this.#buffer && this.#epoch === hello.value!.epoch) {
      const joined = await call("sessions.subscribe", { sessionKey, after: this.#seq, epoch: this.#epoch });
      if (!joined.gap) {
        await loadSessions();
        return;
      }
    }
    const { view, subject } = route.value;
    await this.open(sessionKey ?? ((view === "chat" && subject) || null));
  }

  /** A conversation, or the main one if there is none of that name, for example because its agent was removed. */
  async #find(key: string | null): Promise<FoundSession> {
    if (!key) return call("sessions.get");
    try {
      return await call("sessions.get", { sessionKey: key });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      trouble.value = error.message;
      const main = await call("sessions.get");
      rename("chat", main.key);
      return main;
    }
  }

  #draw(history: History, joined: Subscribed): void {
    const heard = this.#buffer ?? [];
    const events = unfinishedFrom(heard, history.seq);
    // What happened since the history was read and belongs to no turn, such as a message that is not answered.
    const single = heard.filter((frame) => frame.seq > history.seq && !events.includes(frame));
    this.#buffer = null;
    this.#epoch = history.epoch;
    this.#seq = Math.max(joined.seq, heard.at(-1)?.seq ?? 0);
    this.#sessionId = history.sessionId;
    const key = this.key.value!;
    const entries = events.length ? historyBefore(history.entries, events) : history.entries;
    const { advice, caution } = this.introduction.value;
    this.conversation.showHistory(entries, history.total - history.entries.length, history.notes as any);
    if (!history.total && advice) this.conversation.note(advice);
    if (caution) this.conversation.note(caution);
    const running = events.flatMap((frame) => (frame.payload as TurnPayload).runs);
    const runs = history.entries.map((entry) => entry.run as string | undefined);
    this.#outbox.ended(runs.filter((run): run is string => Boolean(run) && !running.includes(run!)));
    for (const own of this.#outbox.of(key)) this.conversation.putBack(own);
    for (const frame of [...single, ...events]) this.#apply(frame);
    this.#sending.value += 1;
    // Preact keeps what a component rendered when its parent was rendered last. Without another rendering of the
    // parents, all messages of that time would stay in memory.
    setTimeout(() => {
      this.drawn.value += 1;
    });
  }

  /** A message that another process answers has an outcome but no events here: ask for it. */
  async #watch(run: string, sessionKey: string): Promise<void> {
    await pause(WATCH_MS);
    while (isOnline.value && this.#outbox.waitsFor(run)) {
      const isQueued = this.conversation.running.value !== null;
      const found = isQueued ? null : await attempting(() => call("agent.wait", { runId: run, timeoutMs: MAX_WAIT_MS }));
      await pause(WATCH_MS); // events that were sent before the answer are read first
      const outbound = found?.outbound;
      if (!outbound || !this.#outbox.waitsFor(run)) continue;
      this.#outbox.ended([run]);
      if (sessionKey === this.key.value) this.conversation.note(outbound.error || outbound.text, Boolean(outbound.error));
      this.#sending.value += 1;
      await attempting(() => call("agent.confirm", { runId: run }));
    }
  }

  /** Show missed answers that the history does not contain, and confirm all of them. */
  async #catchUp(history: History): Promise<void> {
    if (!may("write")) return;
    const told = toldIn(history);
    const { answers } = await call("agent.missed", { sessionKey: this.key.value });
    for (const { outbound } of answers) {
      const isRun = history.entries.some((entry) => entry.run === outbound.runId);
      const isShown = isRun || told.has(outbound.error || outbound.text);
      if (!isShown && !outbound.silent) this.conversation.note(outbound.error || outbound.text, Boolean(outbound.error));
      await call("agent.confirm", { runId: outbound.runId });
    }
  }

  /** Show a session that replaced the open one, for example after `/new`. */
  async #sessionsLoaded(): Promise<void> {
    const row = sessions.value?.find((each) => each.key === this.key.value);
    if (row && document.visibilityState === "visible" && route.value.view === "chat") markSeen(row.key);
    if (!row || this.#buffer || this.conversation.running.value) return;
    if (this.#sessionId && row.sessionId !== this.#sessionId) {
      const text = this.#lastCommand || FRESH;
      this.#lastCommand = "";
      await this.open(this.key.value);
      this.conversation.note(text);
    }
    this.#sessionId = row.sessionId;
  }

  /** A turn answers messages that another client sent: find them in the history. */
  async #findAsked(runs: string[], place: (entry: Entry) => void): Promise<void> {
    await this.#outbox.settled();
    const key = this.key.value;
    if (runs.some((run) => this.#outbox.knows(run))) return;
    await attempting(async () => {
      const { entries } = await call("chat.history", { sessionKey: key, limit: 20 });
      const asked = entries.find((entry) => runs.includes(entry.run) && entry.message?.role === "user");
      if (asked && key === this.key.value) place(asked);
    });
  }

  #heard(frame: Event): void {
    if (frame.stream !== this.key.value || frame.event !== "turn") return;
    if (this.#buffer) this.#buffer.push(frame);
    else if (frame.seq > this.#seq) this.#apply(frame);
  }

  #apply(frame: Event): void {
    this.#seq = Math.max(this.#seq, frame.seq);
    const { runs, event } = frame.payload as TurnPayload;
    const end = this.conversation.apply(runs, event);
    if (event.type === "turn_started") this.#outbox.begun(runs);
    if (end) this.#finished(runs, end);
    this.#sending.value += 1;
  }

  #finished(runs: string[], { own, isCommand, text }: Ending): void {
    const sent = this.#outbox.ended(runs);
    const { name } = this.identity.value;
    announcement.value = `${name}: ${text.slice(0, MAX_READ_OUT)}`;
    notify(name, shorten(text, 160));
    const sessionKey = this.key.value;
    void attempting(async () => {
      // At once, because the next answer may begin in a moment; while one is written, nothing is drawn again.
      const isLong = this.conversation.items.value.length > MAX_ITEMS && !this.readsBack.value;
      if (isLong) await this.open(sessionKey);
      if (isCommand) {
        this.#lastCommand = text;
        // A command may have started a new conversation before the page knew the key of the first.
        this.#sessionId ||= NOT_KNOWN_YET;
        loadSessionsSoon();
        void this.#introduce(sessionKey);
        return;
      }
      for (const run of own) await call("agent.confirm", { runId: run });
      if (sent) await this.#nameSession(sent);
      await this.#introduce(sessionKey);
    });
  }

  /** Label a conversation that was started here with its first words. */
  async #nameSession(words: string): Promise<void> {
    const key = this.key.value!;
    const row = sessions.value?.find((each) => each.key === key);
    if (!key.includes(`:${OWN_PREFIX}`) || row?.label) return;
    await call("sessions.patch", { sessionKey: key, label: shorten(words, 60) });
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** The reasons and notes that a history shows. */
function toldIn({ entries, notes }: History): Set<string> {
  const all = [...notes, ...entries.flatMap((entry) => (entry.notes ?? []) as Record<string, string>[])];
  return new Set(all.flatMap(({ text, why }) => [text, why]).filter((each): each is string => Boolean(each)));
}

export const thread = new Thread();
