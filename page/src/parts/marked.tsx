import type { ComponentChildren } from "preact";
import { shorten } from "../core/text";

const COMMON = new Set(
  "the and for are was were has have had who whom whose what when where which why how does did that this with from not you".split(" "),
);

/** The words of a query that are worth marking. */
function wordsOf(query: string): string[] {
  const words = query.split(/[^\p{L}\p{N}]+/u).filter((word) => word.length > 2);
  const telling = words.filter((word) => !COMMON.has(word.toLowerCase()));
  return telling.length ? telling : words;
}

/** The part of a text around the first word of a query, on one line. */
export function excerpt(text: string, query: string, most: number): string {
  const line = text.replace(/\s+/g, " ");
  const places = wordsOf(query).map((word) => line.toLowerCase().indexOf(word.toLowerCase()));
  const first = Math.min(...places.filter((place) => place >= 0), line.length);
  const start = first < most - 40 || first === line.length ? 0 : first - 40;
  return `${start ? "… " : ""}${shorten(line.slice(start), most)}`;
}

export function hasWord(text: string, query: string): boolean {
  return wordsOf(query).some((word) => text.toLowerCase().includes(word.toLowerCase()));
}

/** A text in which the words of a query are marked. */
export function marked(text: string, query: string): ComponentChildren[] {
  const words = wordsOf(query);
  if (!words.length) return [text];
  const pattern = new RegExp(`(${words.join("|")})`, "giu");
  return text.split(pattern).map((part, place) => (place % 2 ? <mark>{part}</mark> : part));
}
