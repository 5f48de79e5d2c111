import type { ComponentChildren } from "preact";

/** A text in which the words of a query are marked. */
export function marked(text: string, query: string): ComponentChildren[] {
  const words = query.split(/[^\p{L}\p{N}]+/u).filter((word) => word.length > 1);
  if (!words.length) return [text];
  const pattern = new RegExp(`(${words.join("|")})`, "giu");
  return text.split(pattern).map((part, place) => (place % 2 ? <mark>{part}</mark> : part));
}
