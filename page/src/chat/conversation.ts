// The conversation as values that views show: history first, then events as they arrive.
import { batch, type Signal, signal } from "@preact/signals";
import type { Event, TurnPayload, WireApproval } from "../generated/wire";
import { shorten } from "../core/text";
import { type Content, contentOf, partsOf, type ShownPicture } from "./content";

export const BESIDE = new Set(["memory", "compaction"]);
const VERDICTS: Record<string, string> = {
  "allow-once": "Allowed once",
  "allow-always": "Always allowed",
  deny: "Denied",
};

export type CallState = "running" | "waiting" | "done" | "failed" | "denied" | "unfinished";

/** One tool call. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: any;
  state: Signal<CallState>;
  progress: Signal<string>;
  result: Signal<Content | null>;
  seconds: Signal<number>;
  /** Whether its result is text from outside, which may try to steer the agent. */
  isOutside: Signal<boolean>;
}

export type Piece =
  | { kind: "text"; prose: Prose }
  | { kind: "thinking"; text: Signal<string> }
  | { kind: "call"; call: ToolCall }
  | { kind: "files"; paths: string[] }
  | { kind: "notice"; text: string; tone: "plain" | "problem" | "stopped" };

export interface PersonItem {
  kind: "person";
  id: string;
  name: string;
  text: string;
  pictures: ShownPicture[];
  when: string | null;
  run: string | null;
  /** Its entry in the transcript, if it was read from there. */
  entry: string | null;
  own: OwnMessage | null;
}

export interface NoteItem {
  kind: "note";
  id: string;
  text: string;
  isProblem: boolean;
}

export type Item = PersonItem | NoteItem | Answer;

export interface Identity {
  name: string;
  emoji: string;
  showsThinking: boolean;
}

type TurnEvent = TurnPayload["event"];
export type Entry = Record<string, any>;
interface Note {
  kind: string;
  text: string;
  why?: string;
}

let lastId = 0;
function nextId(): string {
  return `item-${++lastId}`;
}

/** The events of turns that are not complete in a history read up to `seq`. */
export function unfinishedFrom(events: Event[], seq: number): Event[] {
  let begin = -1;
  for (const [place, frame] of events.entries()) {
    const { runs, event } = frame.payload as TurnPayload;
    if (event.type === "turn_started" && begin < 0) begin = place;
    const isItsEnd = event.type === "turn_finished" && begin >= 0 && overlap(runs, events[begin]!.payload.runs);
    if (isItsEnd && frame.seq <= seq) begin = -1;
  }
  return begin < 0 ? [] : events.slice(begin);
}

function overlap(some: string[], others: string[]): boolean {
  return some.some((each) => others.includes(each));
}

/**
 * The part of a history that the events of an unfinished turn do not repeat: what came before the turn, the message
 * that it answers, and what an earlier process had already answered before it ended.
 */
export function historyBefore(entries: Entry[], events: Event[]): Entry[] {
  const { runs } = events[0]!.payload as TurnPayload;
  const isAnswer = (entry: Entry) => runs.includes(entry.run) && entry.message?.role === "assistant";
  let kept = entries.filter(isAnswer).length - events.filter((frame) => frame.payload.event.type === "answered").length;
  const end = entries.findIndex((entry) => isAnswer(entry) && kept-- <= 0);
  return end < 0 ? entries : entries.slice(0, end);
}

/** Streamed text; it is drawn less often the longer it is, because each time all of it is scanned. */
export class Prose {
  readonly shown = signal("");
  text = "";
  #timer = 0;

  add(more: string): void {
    this.text += more;
    this.#timer ||= window.setTimeout(() => this.flush(), Math.max(40, this.text.length / 400));
  }

  set(text: string): void {
    this.text = text;
    this.flush();
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.shown.value = this.text;
  }
}

/** A message that was typed here, until its turn starts. */
export class OwnMessage {
  run: string | null = null;
  readonly state = signal("");
  readonly problem = signal("");
  readonly retry = signal<(() => void) | null>(null);
  item: PersonItem;

  constructor(text: string, pictures: ShownPicture[] = []) {
    const when = new Date().toISOString();
    this.item = { kind: "person", id: nextId(), name: "You", text, pictures, when, run: null, entry: null, own: this };
  }

  showState(text: string): void {
    this.state.value = text;
    this.problem.value = "";
  }

  /** The message could not be sent; `again` retries. */
  fail(problem: string, again: () => void): void {
    batch(() => {
      this.state.value = "";
      this.problem.value = problem;
      this.retry.value = () => {
        this.showState("");
        again();
      };
    });
  }
}

/** An answer: text, reasoning and calls in order of arrival. */
export class Answer {
  readonly kind = "answer";
  readonly id = nextId();
  readonly pieces = signal<Piece[]>([]);
  readonly isOpen = signal(true);
  readonly model = signal("");
  readonly tokens = signal(0);
  spoken = "";
  when: string | null = null;
  #prose: Prose | null = null;
  #thinking: Signal<string> | null = null;
  #isWhole: boolean;

  /** `runs` are the messages that it answers; `isWhole` is false if its beginning was missed. */
  constructor(
    readonly who: Identity,
    readonly runs: string[],
    isWhole: boolean,
  ) {
    this.#isWhole = isWhole;
  }

  get calls(): ToolCall[] {
    return this.pieces.value.flatMap((piece) => (piece.kind === "call" ? [piece.call] : []));
  }

  get text(): string {
    return this.pieces.value
      .flatMap((piece) => (piece.kind === "text" ? [piece.prose.text] : []))
      .join("\n\n");
  }

  speak(text: string): void {
    if (!this.#prose) {
      this.#prose = new Prose();
      this.#add({ kind: "text", prose: this.#prose });
      this.#thinking = null;
    }
    this.#prose.add(text);
  }

  think(text: string): void {
    if (!this.who.showsThinking) return;
    if (!this.#thinking) {
      this.#thinking = signal("");
      this.#add({ kind: "thinking", text: this.#thinking });
    }
    this.#thinking.value += text;
  }

  /** One message of the model is complete; if its beginning was missed, the whole message replaces it. */
  closeMessage(content: any): void {
    const whole = contentOf(content).text;
    if (!this.#isWhole && whole) {
      this.speak("");
      this.#prose!.set(whole);
    }
    this.#isWhole = true;
    this.#closeProse();
    this.#thinking = null;
  }

  startTool(call: { id: string; name: string; arguments?: any }): void {
    this.#closeProse();
    this.#thinking = null;
    const started: ToolCall = {
      id: call.id,
      name: call.name,
      arguments: call.arguments ?? {},
      state: signal<CallState>("running"),
      progress: signal(""),
      result: signal<Content | null>(null),
      seconds: signal(0),
      isOutside: signal(false),
    };
    this.#add({ kind: "call", call: started });
  }

  progress(callId: string, text: string): void {
    const call = this.#running(callId);
    if (call) call.progress.value = `${call.progress.value}${text}\n`.slice(-100_000);
  }

  finishTool(call: { id: string; name: string; arguments?: any }, ended: EndedCall): void {
    const { content, isError, seconds = 0, origin } = ended;
    if (!this.#running(call.id)) this.startTool(call);
    const running = this.#running(call.id)!;
    batch(() => {
      running.isOutside.value = origin === "untrusted";
      running.result.value = content;
      running.seconds.value = seconds;
      running.state.value = !isError ? "done" : running.state.value === "denied" ? "denied" : "failed";
    });
  }

  notice(text: string, tone: "plain" | "problem" | "stopped" = "plain"): void {
    this.#closeProse();
    this.#add({ kind: "notice", text, tone });
  }

  asked(request: WireApproval): void {
    this.#setLast(request.tool, "waiting");
  }

  decided(request: WireApproval, decision: { verdict: string; because: string }): void {
    this.#setLast(request.tool, decision.verdict === "deny" ? "denied" : "running");
    const verdict = VERDICTS[decision.verdict] ?? decision.verdict;
    this.notice(`${verdict}: ${shorten(request.title, 200)} (${shorten(decision.because, 200)})`);
  }

  /** Files that the answer sends. */
  send(paths: string[]): void {
    if (!paths.length) return;
    this.#closeProse();
    this.#add({ kind: "files", paths });
  }

  finish({ status, text, error, media = [] }: Finished): void {
    batch(() => {
      this.#closeProse();
      for (const call of this.calls) if (!call.result.value) call.state.value = "unfinished";
      if (text && !this.spoken) {
        this.speak(text);
        this.#closeProse();
      }
      this.send(media);
      if (error) this.notice(error, "problem");
      else if (status === "aborted") this.notice("Stopped.", "stopped");
      else if (!this.pieces.value.length) this.notice("The answer is empty.", "stopped");
      this.isOpen.value = false;
    });
  }

  /** A decision of the history: it says what was decided, but not on which call. */
  decidedBefore(text: string): void {
    if (text.startsWith(VERDICTS.deny!)) this.#setLast(null, "denied");
    this.notice(text);
  }

  #setLast(name: string | null, state: CallState): void {
    const call = this.calls.findLast((each) => name === null || each.name === name);
    if (call && !call.result.value) call.state.value = state;
  }

  /** The oldest call with this id that has no result; some providers give several calls the same id. */
  #running(id: string): ToolCall | undefined {
    return this.calls.find((call) => call.id === id && !call.result.value);
  }

  #closeProse(): void {
    if (!this.#prose) return;
    this.#prose.flush();
    this.spoken += this.#prose.text;
    this.#prose = null;
  }

  #add(piece: Piece): void {
    this.pieces.value = [...this.pieces.value, piece];
  }
}

interface EndedCall {
  content: Content;
  isError: boolean;
  seconds?: number;
  origin?: string | undefined;
}

interface Finished {
  status: string;
  text: string;
  error?: string | null;
  media?: string[];
}

/** The end of a turn or of a command. */
export interface Ending {
  own: string[];
  isCommand: boolean;
  text: string;
}

/**
 * `who` returns the agent's name and whether reasoning is shown. `missing(runs, place)` is called for a turn whose
 * message was not sent from here; it passes the entry of the message to `place`.
 */
export class Conversation {
  readonly items = signal<Item[]>([]);
  readonly running = signal<Answer | null>(null);
  /** How many messages the history has before those that are shown. */
  readonly earlier = signal(0);
  #who: () => Identity;
  #missing: (runs: string[], place: (entry: Entry) => void) => void;
  #own = new Map<string, OwnMessage>();
  #shown = new Set<string>();

  constructor(who: () => Identity, missing: (runs: string[], place: (entry: Entry) => void) => void) {
    this.#who = who;
    this.#missing = missing;
  }

  clear(): void {
    this.items.value = [];
    this.running.value = null;
    this.earlier.value = 0;
    this.#own.clear();
    this.#shown.clear();
  }

  showHistory(entries: Entry[], before: number, notes: Note[] = []): void {
    batch(() => {
      this.clear();
      this.earlier.value = before;
      this.items.value = this.#read(entries, notes);
    });
  }

  /** Show older messages above those that are shown. */
  prepend(entries: Entry[], before: number, notes: Note[] = []): void {
    batch(() => {
      this.earlier.value = before;
      this.items.value = [...this.#read(entries, notes), ...this.items.value];
    });
  }

  /** Show a message that was typed here; returns the object that displays its state. */
  addOwn(text: string, pictures: ShownPicture[] = []): OwnMessage {
    const own = new OwnMessage(text, pictures);
    this.#append(own.item);
    return own;
  }

  /** Show a message that was typed here again after the conversation was redrawn, unless it is already shown. */
  putBack(own: OwnMessage): void {
    if (own.run && this.#shown.has(own.run)) return;
    this.#append(own.item);
    if (own.run) this.#own.set(own.run, own);
  }

  /** The message was accepted; its turn has this run. */
  noteRun(run: string, own: OwnMessage): void {
    own.run = run;
    this.#own.set(run, own);
  }

  note(text: string, isProblem = false): void {
    this.#append({ kind: "note", id: nextId(), text, isProblem });
  }

  /** Show an event of a turn. Returns the end of a turn or of a command; null for every other event. */
  apply(runs: string[], event: TurnEvent): Ending | null {
    return batch(() => {
      switch (event.type) {
        case "accepted":
          return null;
        case "turn_started":
          this.#begin(runs);
          return null;
        case "turn_finished":
          return this.#finish(runs, event);
        case "notice":
          if (!this.running.value) {
            this.note(event.text);
            return null;
          }
      }
      this.#applyToAnswer(runs, event);
      return null;
    });
  }

  #append(item: Item): void {
    this.items.value = [...this.items.value, item];
  }

  #begin(runs: string[]): void {
    const isKnown = runs.some((run) => this.#own.has(run) || this.#shown.has(run));
    for (const run of runs) this.#own.get(run)?.showState("");
    const answer = this.#startAnswer(runs, true);
    if (isKnown) return;
    this.#missing(runs, (entry) => {
      const items = this.items.value;
      const place = items.indexOf(answer);
      if (place >= 0) this.items.value = [...items.slice(0, place), this.#personItem(entry), ...items.slice(place)];
    });
  }

  #finish(runs: string[], event: Extract<TurnEvent, { type: "turn_finished" }>): Ending {
    const answer = this.running.value && overlap(runs, this.running.value.runs) ? this.running.value : null;
    if (answer) {
      answer.finish(event);
      this.running.value = null;
    } else if (event.text || event.error) {
      this.note(event.error || event.text, Boolean(event.error)); // a command or a refused message has no turn
    }
    const own = runs.filter((run) => this.#own.delete(run));
    return { own, isCommand: !answer && !event.error, text: event.error || event.text || "" };
  }

  #applyToAnswer(runs: string[], event: TurnEvent): void {
    const answer = this.running.value ?? this.#startAnswer(runs, false);
    switch (event.type) {
      case "spoken":
        return answer.speak(event.text);
      case "thought":
        return answer.think(event.text);
      case "answered":
        answer.model.value = event.message.model ?? answer.model.value;
        return answer.closeMessage(event.message.content);
      case "tool_started":
        return answer.startTool(event.call);
      case "tool_progress":
        return answer.progress(event.callId, event.text);
      case "tool_finished":
        return answer.finishTool(event.call, {
          content: contentOf(event.result.content),
          isError: Boolean(event.result.isError),
          seconds: event.seconds,
          origin: event.result.label?.origin,
        });
      case "approval_asked":
        return answer.asked(event.request);
      case "approval_given":
        return answer.decided(event.request, event.decision);
      case "notice":
        return answer.notice(event.text);
      default:
        return undefined; // a newer gateway may send other events
    }
  }

  #startAnswer(runs: string[], isWhole: boolean): Answer {
    const answer = new Answer(this.#who(), runs, isWhole);
    answer.when = new Date().toISOString();
    this.#append(answer);
    this.running.value = answer;
    return answer;
  }

  #read(entries: Entry[], notes: Note[]): Item[] {
    const reader = new HistoryReader(this.#who(), (entry) => this.#personItem(entry));
    reader.readNotes(notes);
    for (const entry of entries) if (entry.message && !BESIDE.has(entry.source)) reader.read(entry);
    return reader.end();
  }

  #personItem(entry: Entry): PersonItem {
    if (entry.run) this.#shown.add(entry.run);
    const { text, pictures } = contentOf(entry.message.content);
    const other = entry.source && entry.source !== "chat" ? entry.source : "You";
    const name = entry.message.sender || other;
    const [when, run] = [whenOf(entry), entry.run ?? null];
    return { kind: "person", id: nextId(), name, text, pictures, when, run, entry: entry.id ?? null, own: null };
  }
}

function whenOf(entry: Entry): string | null {
  return entry.timestamp ?? entry.at ?? null;
}

/** Turns the entries of a transcript into items. */
class HistoryReader {
  #items: Item[] = [];
  #answer: Answer | null = null;

  constructor(
    readonly who: Identity,
    readonly person: (entry: Entry) => PersonItem,
  ) {}

  read(entry: Entry): void {
    const { message } = entry;
    if (message.role === "user") {
      this.#close();
      this.#items.push(this.person(entry));
    } else if (message.role === "toolResult") {
      const call = { id: message.toolCallId, name: message.toolName };
      const ended = { content: contentOf(message.content), isError: Boolean(message.isError), origin: message.trust };
      this.#open().finishTool(call, ended);
    } else {
      this.#readAnswer(entry);
    }
    this.readNotes(entry.notes ?? []);
  }

  /** What happened after a message of the history. */
  readNotes(notes: Note[]): void {
    for (const { kind, text, why } of notes) {
      if (kind === "unanswered") {
        this.#close();
        this.#items.push(
          { kind: "person", id: nextId(), name: "You", text, pictures: [], when: null, run: null, entry: null, own: null },
          { kind: "note", id: nextId(), text: why ?? "", isProblem: true },
        );
      } else if (kind === "failed") this.#open().notice(text, "problem");
      else if (kind === "aborted") this.#open().notice("Stopped.", "stopped");
      else if (kind === "decided") this.#open().decidedBefore(text);
      else this.#open().notice(text);
    }
  }

  end(): Item[] {
    this.#close();
    return this.#items;
  }

  #readAnswer({ message, notes, ...entry }: Entry): void {
    const open = this.#open();
    open.when ??= whenOf(entry);
    if (message.model) open.model.value = message.model;
    for (const part of partsOf(message.content)) {
      if (part.type === "text") open.speak(part.text);
      if (part.type === "thinking" && part.thinking) open.think(part.thinking);
      if (part.type === "toolCall") open.startTool({ id: part.id, name: part.name, arguments: part.arguments });
    }
    open.closeMessage([]);
    open.send(entry.delivery?.media ?? []);
    const isTold = (notes as Note[] | undefined)?.some(({ kind }) => kind === "failed");
    if (message.errorMessage && !isTold) open.notice(message.errorMessage, "problem");
  }

  #open(): Answer {
    if (!this.#answer) {
      this.#answer = new Answer(this.who, [], true);
      this.#items.push(this.#answer);
    }
    return this.#answer;
  }

  #close(): void {
    this.#answer?.finish({ status: "ok", text: "" });
    this.#answer = null;
  }
}
