// Renders Markdown as elements. Only the elements listed here are created; links use http, https or mailto, and
// pictures and HTML stay text. An embedded page is a card with a link: the page loads and frames nothing from elsewhere. Every scan is bounded, because a text may be crafted to take long.

import { make } from "./dom.js";

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

/** Render a text as block elements. */
export function renderMarkdown(text) {
  if (text.length > MAX_CHARACTERS) return [make("p", { class: "plain" }, text)];
  return renderBlocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

/** The URL of a link if it is allowed; otherwise null. */
export function safeAddress(text) {
  if (text.length > MAX_ADDRESS_LENGTH) return null;
  try {
    const url = new URL(text);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function renderBlocks(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (!line.trim()) {
      at += 1;
      continue;
    }
    const reader = depth < DEEPEST ? BLOCKS.find(([begins]) => begins(lines, at)) : undefined;
    const [block, next] = reader ? reader[1](lines, at, depth) : readParagraph(lines, at, depth);
    blocks.push(block);
    at = next;
  }
  return blocks;
}

const BLOCKS = [
  [(lines, at) => FENCE.test(lines[at]), readFence],
  [(lines, at) => HEADING.test(lines[at]), readHeading],
  [(lines, at) => isRule(lines[at]), (lines, at) => [make("hr"), at + 1]],
  [(lines, at) => readEmbed(lines[at]) !== null, (lines, at) => [readEmbed(lines[at]), at + 1]],
  [(lines, at) => QUOTE.test(lines[at]), readQuote],
  [(lines, at) => ITEM.test(lines[at]), readList],
  [isTable, readTable],
];

/** The card of an embedded page; null if the line is none or its address is not allowed. */
function readEmbed(line) {
  const found = line.length < 3_000 ? EMBED.exec(line) : null;
  const address = found && safeAddress(found[1]);
  return address ? make("p", { class: "embed" }, link(address, [found[2] || address])) : null;
}

function isRule(line) {
  return line.length < 200 && RULE.test(line);
}

function isTable(lines, at) {
  const next = lines[at + 1] ?? "";
  return lines[at].includes("|") && next.includes("|") && next.length < 1_000 && ALIGNMENT.test(next);
}

function readFence(lines, at) {
  const [, fence, language] = FENCE.exec(lines[at]);
  const end = new RegExp(`^ {0,3}${fence[0] === "~" ? "~" : "`"}{${fence.length},}[ \\t]*$`);
  let next = at + 1;
  while (next < lines.length && !end.test(lines[next])) next += 1;
  return [codeBlock(lines.slice(at + 1, next).join("\n"), language), next + 1];
}

function codeBlock(text, language) {
  const attributes = { tabindex: "0", "aria-label": language ? `Code, ${language}` : "Code", role: "group" };
  return make("pre", attributes, make("code", {}, text));
}

function readHeading(lines, at) {
  const [mark, hashes] = HEADING.exec(lines[at]);
  const text = lines[at].slice(mark.length).trim().replace(/[ \t]#{1,20}$/, "");
  return [make(`h${Math.min(6, hashes.length + 2)}`, {}, ...renderInline(text)), at + 1];
}

function readQuote(lines, at, depth) {
  let next = at;
  while (next < lines.length && QUOTE.test(lines[next])) next += 1;
  const inner = lines.slice(at, next).map((line) => line.replace(QUOTE, ""));
  return [make("blockquote", {}, ...renderBlocks(inner, depth + 1)), next];
}

function readList(lines, at, depth) {
  const [, indent, marker] = ITEM.exec(lines[at]);
  const isOrdered = marker.length > 1;
  const items = [];
  let next = at;
  while (next < lines.length) {
    const found = ITEM.exec(lines[next]);
    if (!found || isRule(lines[next])) break;
    if (found[1].length > indent.length + 1 || found[2].length > 1 !== isOrdered) break;
    const [item, after] = readItem(lines, next, found);
    items.push(make("li", {}, ...itemContent(item, depth)));
    next = after;
  }
  const start = isOrdered ? Number.parseInt(marker, 10) : 1;
  return [make(isOrdered ? "ol" : "ul", { start: start === 1 ? null : start }, ...items), next];
}

/** The lines of one item without its marker, and the position of the next one. */
function readItem(lines, at, found) {
  const inside = found[1].length + 2;
  const item = [lines[at].slice(found[0].length)];
  let next = at + 1;
  for (; next < lines.length; next += 1) {
    const line = lines[next];
    const indent = line.length - line.trimStart().length;
    if (!line.trim()) {
      const after = lines[next + 1];
      if (after === undefined || after.length - after.trimStart().length < inside) break;
    } else if (indent < inside && (ITEM.test(line) || FENCE.test(line) || HEADING.test(line) || QUOTE.test(line))) {
      break;
    }
    item.push(line.slice(Math.min(indent, Math.max(inside, found[0].length))));
  }
  while (next < lines.length && !lines[next].trim() && ITEM.test(lines[next + 1] ?? "")) next += 1;
  return [item, next];
}

/** Unwrap the paragraph if it is the only content of an item, so that it has no extra spacing. */
function itemContent(lines, depth) {
  const blocks = renderBlocks(lines, depth + 1);
  return blocks[0]?.tagName === "P" ? [...blocks[0].childNodes, ...blocks.slice(1)] : blocks;
}

function readTable(lines, at) {
  const row = (line, tag) => make("tr", {}, ...cells(line).map((cell) => make(tag, {}, ...renderInline(cell))));
  const head = make("thead", {}, row(lines[at], "th"));
  const body = make("tbody");
  let next = at + 2;
  for (; next < lines.length && lines[next].includes("|"); next += 1) body.append(row(lines[next], "td"));
  const attributes = { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" };
  return [make("div", attributes, make("table", {}, head, body)), next];
}

function cells(line) {
  const found = line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|");
  return found.slice(0, 50).map((cell) => cell.trim());
}

function readParagraph(lines, at, depth) {
  const isOther = (place) => depth < DEEPEST && BLOCKS.some(([begins]) => begins(lines, place));
  let next = at + 1;
  while (next < lines.length && lines[next].trim() && !isOther(next)) next += 1;
  return [make("p", {}, ...renderInline(lines.slice(at, next).join("\n").trim())), next];
}

/** Render the text of a block as text and inline elements. */
export function renderInline(text, mayLink = true) {
  return new Inline(text, mayLink).render();
}

class Inline {
  #text;
  #mayLink;
  #at = 0;
  #from = 0;
  #nodes = [];
  #open = [];
  #ticks = null;
  #brackets = null;

  constructor(text, mayLink) {
    this.#text = text;
    this.#mayLink = mayLink;
  }

  render() {
    while (this.#at < this.#text.length) {
      const character = this.#text[this.#at];
      if (!this.#take(character)) this.#at += 1;
    }
    this.#flush();
    return this.#nodes;
  }

  /** Parse the element that starts here; false if it is plain text. */
  #take(character) {
    switch (character) {
      case "\\":
        return this.#takeEscape();
      case "\n":
        this.#put(make("br"), 1);
        return true;
      case "`":
        return this.#takeCode();
      case "*":
      case "_":
      case "~":
        return this.#takeEmphasis(character);
      case "!":
        return this.#text[this.#at + 1] === "[" && this.#takeLink(1);
      case "[":
        return this.#takeLink(0);
      case "h":
        return this.#takeBareAddress();
      default:
        return false;
    }
  }

  #flush() {
    if (this.#from < this.#at) this.#nodes.push(document.createTextNode(this.#text.slice(this.#from, this.#at)));
    this.#from = this.#at;
  }

  /** Replace the next `length` characters by a node. */
  #put(node, length) {
    this.#flush();
    this.#nodes.push(node);
    this.#at += length;
    this.#from = this.#at;
  }

  #takeEscape() {
    const next = this.#text[this.#at + 1];
    if (next === undefined || !PUNCTUATION.test(next)) return false;
    this.#put(document.createTextNode(next), 2);
    return true;
  }

  #takeCode() {
    this.#ticks ??= findTicks(this.#text);
    const length = this.#ticks.lengths.get(this.#at);
    const places = length === undefined ? [] : this.#ticks.places.get(length);
    while (places.length && places[0] <= this.#at) places.shift();
    if (!places.length) {
      this.#at += length ?? 1;
      return true;
    }
    const inner = this.#text.slice(this.#at + length, places[0]).replaceAll("\n", " ");
    const isPadded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim();
    this.#put(make("code", {}, isPadded ? inner.slice(1, -1) : inner), places[0] + length - this.#at);
    return true;
  }

  #takeLink(offset) {
    this.#brackets ??= matchBrackets(this.#text);
    const begin = this.#at + offset;
    const end = this.#brackets.get(begin);
    if (!this.#mayLink || end === undefined || this.#text[end + 1] !== "(") return false;
    const target = readTarget(this.#text, end + 2);
    const address = target && safeAddress(target.address);
    if (!address) return false;
    const label = this.#text.slice(begin + 1, end) || target.address;
    this.#put(link(address, renderInline(label, false)), target.end - this.#at);
    return true;
  }

  #takeBareAddress() {
    if (!this.#mayLink || WORD.test(this.#text[this.#at - 1] ?? " ")) return false;
    BARE_ADDRESS.lastIndex = this.#at;
    const found = BARE_ADDRESS.exec(this.#text);
    if (!found) return false;
    let written = found[0].replace(/[.,;:!?'"*_~]{1,20}$/, "");
    if (written.endsWith(")") && !written.includes("(")) written = written.slice(0, -1);
    const address = safeAddress(written);
    if (!address) return false;
    this.#put(link(address, [written]), written.length);
    return true;
  }

  #takeEmphasis(mark) {
    let end = this.#at;
    while (this.#text[end] === mark) end += 1;
    let count = end - this.#at;
    if (count > 20 || (mark === "~" && count !== 2)) {
      this.#at = end;
      return true;
    }
    const before = this.#text[this.#at - 1] ?? " ";
    const after = this.#text[end] ?? " ";
    const isInWord = mark === "_" && WORD.test(before) && WORD.test(after);
    this.#flush();
    if (before.trim() && !isInWord) count = this.#close(mark, count);
    const left = document.createTextNode(mark.repeat(count));
    this.#nodes.push(left);
    if (count && after.trim() && !isInWord) this.#remember({ mark, count, left });
    this.#at = end;
    this.#from = end;
    return true;
  }

  #remember(opener) {
    this.#open.push(opener);
    if (this.#open.length > MAX_OPEN) this.#open.shift();
  }

  /** Close the elements that earlier marks opened; returns the number of unused marks. */
  #close(mark, count) {
    while (count) {
      const place = this.#open.findLastIndex((opener) => opener.mark === mark);
      if (place < 0) return count;
      const opener = this.#open[place];
      this.#open.length = place + 1;
      const used = mark === "~" || (count > 1 && opener.count > 1) ? 2 : 1;
      const inner = this.#nodes.splice(this.#nodes.lastIndexOf(opener.left) + 1);
      if (!inner.length) return count;
      this.#nodes.push(make(mark === "~" ? "del" : used === 2 ? "strong" : "em", {}, ...inner));
      opener.count -= used;
      opener.left.data = mark.repeat(opener.count);
      if (!opener.count) this.#open.pop();
      count -= used;
    }
    return 0;
  }
}

function link(address, content) {
  const attributes = { href: address, title: address, target: "_blank", rel: "noopener noreferrer" };
  return make("a", attributes, ...content);
}

/** The runs of backticks: the length of each, and the positions for each length. */
function findTicks(text) {
  const lengths = new Map();
  const places = new Map();
  for (const found of text.matchAll(/`+/g)) {
    const length = found[0].length;
    lengths.set(found.index, length);
    if (!places.has(length)) places.set(length, []);
    places.get(length).push(found.index);
  }
  return { lengths, places };
}

function matchBrackets(text) {
  const pairs = new Map();
  const open = [];
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[") open.push(at);
    else if (text[at] === "]" && open.length) pairs.set(open.pop(), at);
  }
  return pairs;
}

/** The URL in `(url "title")`, starting after the parenthesis. */
function readTarget(text, from) {
  let depth = 0;
  for (let at = from; at < text.length && at - from <= MAX_ADDRESS_LENGTH; at += 1) {
    const character = text[at];
    if (character === "\n") return null;
    if (character === "(") depth += 1;
    if (character === ")" && depth-- === 0) {
      const address = text.slice(from, at).trim().split(/\s/, 1)[0].replace(/^<|>$/g, "");
      return { address, end: at + 1 };
    }
  }
  return null;
}
