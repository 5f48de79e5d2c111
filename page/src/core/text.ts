// Untrusted text for people: shortened, and with invisible characters made visible.
import { type ComponentChildren, h } from "preact";

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
const HARMLESS = new Set(["\n", "\t"]);

/** A text in which invisible and bidirectional control characters are replaced by their code points. */
export function reveal(text: string): ComponentChildren[] {
  const shown: ComponentChildren[] = [];
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (HARMLESS.has(found[0])) continue;
    const number = found[0].codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
    shown.push(text.slice(from, found.index), h("span", { class: "hidden-character" }, `U+${number}`));
    from = found.index + found[0].length;
  }
  shown.push(text.slice(from));
  return shown;
}

/** A text shortened to one line, for summaries and lists. */
export function shorten(text: unknown, most: number): string {
  const line = String(text)
    .slice(0, most * 4)
    .replace(HIDDEN, " ")
    .replace(/\s+/g, " ")
    .trim();
  return line.length > most ? `${line.slice(0, most)}…` : line;
}

/** A text of the gateway in which words between backticks are code. */
export function withCode(text: string): ComponentChildren[] {
  return text.split(/`([^`\n]+)`/).map((part, place) => (place % 2 ? h("code", {}, reveal(part)) : reveal(part)));
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}

export function capitalize(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** The name of a key as words: `idleMinutes` becomes “Idle minutes”. */
export function humanize(name: string): string {
  const words = name.replace(/([a-z\d])([A-Z])/g, "$1 $2").replace(/[_-]+/g, " ");
  return capitalize(words.replace(/\b[A-Z][a-z]+\b/g, (word, at: number) => (at ? word.toLowerCase() : word)));
}

export function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
