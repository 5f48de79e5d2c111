// Renders Markdown as virtual nodes. Only the elements listed here are created; links use http, https or mailto, and
// pictures and HTML stay text. An embedded page is a card with a link: the page loads and frames nothing from
// elsewhere. Every scan is bounded, because a text may be crafted to take long.
import { type ComponentChild, h, type VNode } from "preact";
import { CodeBlock } from "../parts/code";

const MAX_CHARACTERS = 200_000;
const DEEPEST = 6;
const MAX_OPEN = 48;
const MAX_ADDRESS_LENGTH = 2_000;
const SCHEMES = new Set(["http:", "https:", "mailto:"]);

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([\w+#.-]{0,40})/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const ALIGNMENT = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const BARE_ADDRESS = /https?:\/\/[^\s<>"`\\^{}|]{1,2000}/y;
const EMBED = /^ {0,3}\[embed ref="([^"]{1,2000})"(?: title="([^"]{0,200})")?(?: height="\d{1,4}")? ?\/\][ \t]*$/;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;

type Read = [VNode<any>, number];
type Attributes = Record<string, unknown>;

function make(tag: string, attributes: Attributes, ...children: ComponentChild[]): VNode<any> {
  return h(tag, attributes, ...children);
}

/** The blocks that were rendered last; a block whose text has not changed is not rendered again. */
export type BlockCache = Map<string, VNode<any>>;

/** Render a text as block elements. */
export function renderMarkdown(text: string, cache: BlockCache = new Map()): VNode<any>[] {
  if (text.length > MAX_CHARACTERS) return [make("p", { class: "plain" }, text)];
  const earlier = new Map(cache);
  cache.clear();
  return renderBlocks(text.replace(/\r\n?/g, "\n").split("\n"), 0, (key, fresh) => {
    const block = earlier.get(key) ?? fresh;
    cache.set(key, block);
    return block;
  });
}

/** The URL of a link if it is allowed; otherwise null. */
export function safeAddress(text: string): string | null {
  if (text.length > MAX_ADDRESS_LENGTH) return null;
  try {
    const url = new URL(text);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** Returns the node that was made for the same text at the same place before, which then is not drawn again. */
type Remember = (key: string, fresh: VNode<any>) => VNode<any>;

function renderBlocks(lines: string[], depth: number, remember?: Remember): VNode<any>[] {
  const blocks: VNode<any>[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at]!;
    if (!line.trim()) {
      at += 1;
      continue;
    }
    const reader = depth < DEEPEST ? BLOCKS.find(([begins]) => begins(lines, at)) : undefined;
    const read = reader ? reader[1] : readParagraph;
    const [block, next] = read(lines, at, depth);
    const key = `${blocks.length}:${lines.slice(at, next).join("\n")}`;
    blocks.push(remember ? remember(key, block) : block);
    at = next;
  }
  return blocks;
}

const BLOCKS: [(lines: string[], at: number) => boolean, (lines: string[], at: number, depth: number) => Read][] = [
  [(lines, at) => FENCE.test(lines[at]!), readFence],
  [(lines, at) => HEADING.test(lines[at]!), readHeading],
  [(lines, at) => isRule(lines[at]!), (_, at) => [make("hr", {}), at + 1]],
  [(lines, at) => readEmbed(lines[at]!) !== null, (lines, at) => [readEmbed(lines[at]!)!, at + 1]],
  [(lines, at) => QUOTE.test(lines[at]!), readQuote],
  [(lines, at) => ITEM.test(lines[at]!), readList],
  [isTable, readTable],
];

/** The card of an embedded page; null if the line is none or its address is not allowed. */
function readEmbed(line: string): VNode<any> | null {
  const found = line.length < 3_000 ? EMBED.exec(line) : null;
  const address = found && safeAddress(found[1]!);
  return address ? make("p", { class: "embed" }, link(address, [found[2] || address])) : null;
}

function isRule(line: string): boolean {
  return line.length < 200 && RULE.test(line);
}

function isTable(lines: string[], at: number): boolean {
  const next = lines[at + 1] ?? "";
  return lines[at]!.includes("|") && next.includes("|") && next.length < 1_000 && ALIGNMENT.test(next);
}

function readFence(lines: string[], at: number): Read {
  const [, fence = "", language = ""] = FENCE.exec(lines[at]!)!;
  const end = new RegExp(`^ {0,3}${fence[0] === "~" ? "~" : "`"}{${fence.length},}[ \\t]*$`);
  let next = at + 1;
  while (next < lines.length && !end.test(lines[next]!)) next += 1;
  return [h(CodeBlock, { text: lines.slice(at + 1, next).join("\n"), language }), next + 1];
}

function readHeading(lines: string[], at: number): Read {
  const [mark, hashes = ""] = HEADING.exec(lines[at]!)!;
  const text = lines[at]!.slice(mark.length).trim().replace(/[ \t]#{1,20}$/, "");
  return [make(`h${Math.min(6, hashes.length + 2)}`, {}, ...renderInline(text)), at + 1];
}

function readQuote(lines: string[], at: number, depth: number): Read {
  let next = at;
  while (next < lines.length && QUOTE.test(lines[next]!)) next += 1;
  const inner = lines.slice(at, next).map((line) => line.replace(QUOTE, ""));
  return [make("blockquote", {}, ...renderBlocks(inner, depth + 1)), next];
}

function readList(lines: string[], at: number, depth: number): Read {
  const [, indent = "", marker = ""] = ITEM.exec(lines[at]!)!;
  const isOrdered = marker.length > 1;
  const items: VNode<any>[] = [];
  let next = at;
  while (next < lines.length) {
    const found = ITEM.exec(lines[next]!);
    if (!found || isRule(lines[next]!)) break;
    if (found[1]!.length > indent.length + 1 || found[2]!.length > 1 !== isOrdered) break;
    const [item, after] = readItem(lines, next, found);
    items.push(make("li", {}, ...itemContent(item, depth)));
    next = after;
  }
  const start = isOrdered ? Number.parseInt(marker, 10) : 1;
  return [make(isOrdered ? "ol" : "ul", start === 1 ? {} : { start }, ...items), next];
}

/** The lines of one item without its marker, and the position of the next one. */
function readItem(lines: string[], at: number, found: RegExpExecArray): [string[], number] {
  const inside = found[1]!.length + 2;
  const item = [lines[at]!.slice(found[0].length)];
  let next = at + 1;
  for (; next < lines.length; next += 1) {
    const line = lines[next]!;
    const indent = line.length - line.trimStart().length;
    if (!line.trim()) {
      const after = lines[next + 1];
      if (after === undefined || after.length - after.trimStart().length < inside) break;
    } else if (indent < inside && (ITEM.test(line) || FENCE.test(line) || HEADING.test(line) || QUOTE.test(line))) {
      break;
    }
    item.push(line.slice(Math.min(indent, Math.max(inside, found[0].length))));
  }
  while (next < lines.length && !lines[next]!.trim() && ITEM.test(lines[next + 1] ?? "")) next += 1;
  return [item, next];
}

/** Unwrap the paragraph if it is the first content of an item, so that it has no extra spacing. */
function itemContent(lines: string[], depth: number): ComponentChild[] {
  const blocks = renderBlocks(lines, depth + 1);
  const [first, ...rest] = blocks;
  if (first?.type !== "p") return blocks;
  const inner = first.props.children;
  return [...(Array.isArray(inner) ? inner : [inner]), ...rest];
}

function readTable(lines: string[], at: number): Read {
  const row = (line: string, tag: string) =>
    make("tr", {}, ...cells(line).map((cell) => make(tag, {}, ...renderInline(cell))));
  const rows: VNode<any>[] = [];
  let next = at + 2;
  for (; next < lines.length && lines[next]!.includes("|"); next += 1) rows.push(row(lines[next]!, "td"));
  const table = make("table", {}, make("thead", {}, row(lines[at]!, "th")), make("tbody", {}, ...rows));
  return [make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" }, table), next];
}

function cells(line: string): string[] {
  const found = line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|");
  return found.slice(0, 50).map((cell) => cell.trim());
}

function readParagraph(lines: string[], at: number, depth: number): Read {
  const isOther = (place: number) => depth < DEEPEST && BLOCKS.some(([begins]) => begins(lines, place));
  let next = at + 1;
  while (next < lines.length && lines[next]!.trim() && !isOther(next)) next += 1;
  return [make("p", {}, ...renderInline(lines.slice(at, next).join("\n").trim())), next];
}

/** Render the text of a block as text and inline elements. */
export function renderInline(text: string, mayLink = true): ComponentChild[] {
  return new Inline(text, mayLink).render();
}

/** Marks that may open an element; what no later mark closes stays text. */
interface Opener {
  mark: string;
  count: number;
  left: PlainText;
}

class PlainText {
  constructor(public data: string) {}
}

interface Ticks {
  lengths: Map<number, number>;
  places: Map<number, number[]>;
}

class Inline {
  #at = 0;
  #from = 0;
  #nodes: (VNode<any> | PlainText)[] = [];
  #open: Opener[] = [];
  #ticks: Ticks | null = null;
  #brackets: Map<number, number> | null = null;

  constructor(
    readonly text: string,
    readonly mayLink: boolean,
  ) {}

  render(): ComponentChild[] {
    while (this.#at < this.text.length) {
      const character = this.text[this.#at]!;
      if (!this.#take(character)) this.#at += 1;
    }
    this.#flush();
    return written(this.#nodes);
  }

  /** Parse the element that starts here; false if it is plain text. */
  #take(character: string): boolean {
    switch (character) {
      case "\\":
        return this.#takeEscape();
      case "\n":
        this.#put(make("br", {}), 1);
        return true;
      case "`":
        return this.#takeCode();
      case "*":
      case "_":
      case "~":
        return this.#takeEmphasis(character);
      case "!":
        return this.text[this.#at + 1] === "[" && this.#takeLink(1);
      case "[":
        return this.#takeLink(0);
      case "h":
        return this.#takeBareAddress();
      default:
        return false;
    }
  }

  #flush(): void {
    if (this.#from < this.#at) this.#nodes.push(new PlainText(this.text.slice(this.#from, this.#at)));
    this.#from = this.#at;
  }

  /** Replace the next `length` characters by a node. */
  #put(node: VNode<any> | PlainText, length: number): void {
    this.#flush();
    this.#nodes.push(node);
    this.#at += length;
    this.#from = this.#at;
  }

  #takeEscape(): boolean {
    const next = this.text[this.#at + 1];
    if (next === undefined || !PUNCTUATION.test(next)) return false;
    this.#put(new PlainText(next), 2);
    return true;
  }

  #takeCode(): boolean {
    this.#ticks ??= findTicks(this.text);
    const length = this.#ticks.lengths.get(this.#at);
    const places = (length !== undefined && this.#ticks.places.get(length)) || [];
    while (places.length && places[0]! <= this.#at) places.shift();
    if (!places.length) {
      this.#at += length ?? 1;
      return true;
    }
    const end = places[0]!;
    const inner = this.text.slice(this.#at + length!, end).replaceAll("\n", " ");
    const isPadded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim();
    this.#put(make("code", {}, isPadded ? inner.slice(1, -1) : inner), end + length! - this.#at);
    return true;
  }

  #takeLink(offset: number): boolean {
    this.#brackets ??= matchBrackets(this.text);
    const begin = this.#at + offset;
    const end = this.#brackets.get(begin);
    if (!this.mayLink || end === undefined || this.text[end + 1] !== "(") return false;
    const target = readTarget(this.text, end + 2);
    const address = target && safeAddress(target.address);
    if (!address) return false;
    const label = this.text.slice(begin + 1, end) || target.address;
    this.#put(link(address, renderInline(label, false)), target.end - this.#at);
    return true;
  }

  #takeBareAddress(): boolean {
    if (!this.mayLink || WORD.test(this.text[this.#at - 1] ?? " ")) return false;
    BARE_ADDRESS.lastIndex = this.#at;
    const found = BARE_ADDRESS.exec(this.text);
    if (!found) return false;
    let shown = found[0].replace(/[.,;:!?'"*_~]{1,20}$/, "");
    if (shown.endsWith(")") && !shown.includes("(")) shown = shown.slice(0, -1);
    const address = safeAddress(shown);
    if (!address) return false;
    this.#put(link(address, [shown]), shown.length);
    return true;
  }

  #takeEmphasis(mark: string): boolean {
    let end = this.#at;
    while (this.text[end] === mark) end += 1;
    let count = end - this.#at;
    if (count > 20 || (mark === "~" && count !== 2)) {
      this.#at = end;
      return true;
    }
    const before = this.text[this.#at - 1] ?? " ";
    const after = this.text[end] ?? " ";
    const isInWord = mark === "_" && WORD.test(before) && WORD.test(after);
    this.#flush();
    if (before.trim() && !isInWord) count = this.#close(mark, count);
    const left = new PlainText(mark.repeat(count));
    this.#nodes.push(left);
    if (count && after.trim() && !isInWord) this.#remember({ mark, count, left });
    this.#at = end;
    this.#from = end;
    return true;
  }

  #remember(opener: Opener): void {
    this.#open.push(opener);
    if (this.#open.length > MAX_OPEN) this.#open.shift();
  }

  /** Close the elements that earlier marks opened; returns the number of unused marks. */
  #close(mark: string, given: number): number {
    let count = given;
    while (count) {
      const place = this.#open.findLastIndex((opener) => opener.mark === mark);
      if (place < 0) return count;
      const opener = this.#open[place]!;
      this.#open.length = place + 1;
      const used = mark === "~" || (count > 1 && opener.count > 1) ? 2 : 1;
      const inner = this.#nodes.splice(this.#nodes.lastIndexOf(opener.left) + 1);
      if (!inner.length) return count;
      this.#nodes.push(make(mark === "~" ? "del" : used === 2 ? "strong" : "em", {}, ...written(inner)));
      opener.count -= used;
      opener.left.data = mark.repeat(opener.count);
      if (!opener.count) this.#open.pop();
      count -= used;
    }
    return 0;
  }
}

/** Nodes as children, with neighbouring texts joined. */
function written(nodes: (VNode<any> | PlainText)[]): ComponentChild[] {
  const children: ComponentChild[] = [];
  for (const node of nodes) {
    if (!(node instanceof PlainText)) children.push(node);
    else if (typeof children.at(-1) === "string") children[children.length - 1] += node.data;
    else if (node.data) children.push(node.data);
  }
  return children;
}

function link(address: string, content: ComponentChild[]): VNode<any> {
  const attributes = { href: address, title: address, target: "_blank", rel: "noopener noreferrer" };
  return make("a", attributes, ...content);
}

/** The runs of backticks: the length of each, and the positions for each length. */
function findTicks(text: string): Ticks {
  const lengths = new Map<number, number>();
  const places = new Map<number, number[]>();
  for (const found of text.matchAll(/`+/g)) {
    const length = found[0].length;
    lengths.set(found.index, length);
    if (!places.has(length)) places.set(length, []);
    places.get(length)!.push(found.index);
  }
  return { lengths, places };
}

function matchBrackets(text: string): Map<number, number> {
  const pairs = new Map<number, number>();
  const open: number[] = [];
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[") open.push(at);
    else if (text[at] === "]" && open.length) pairs.set(open.pop()!, at);
  }
  return pairs;
}

/** The URL in `(url "title")`, starting after the parenthesis. */
function readTarget(text: string, from: number): { address: string; end: number } | null {
  let depth = 0;
  for (let at = from; at < text.length && at - from <= MAX_ADDRESS_LENGTH; at += 1) {
    const character = text[at];
    if (character === "\n") return null;
    if (character === "(") depth += 1;
    if (character === ")" && depth-- === 0) {
      const address = text
        .slice(from, at)
        .trim()
        .split(/\s/, 1)[0]!
        .replace(/^<|>$/g, "");
      return { address, end: at + 1 };
    }
  }
  return null;
}
