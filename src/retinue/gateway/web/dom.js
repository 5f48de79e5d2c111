// Creates elements. Untrusted content is inserted as text: nothing on this page parses HTML.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
const HARMLESS = new Set(["\n", "\t"]);

/** An element; `on` in the attributes is a table of listeners. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A text in which invisible and bidirectional control characters are replaced by their code points. */
export function reveal(text) {
  const shown = document.createDocumentFragment();
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (HARMLESS.has(found[0])) continue;
    const number = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    shown.append(text.slice(from, found.index), make("span", { class: "hidden-character" }, `U+${number}`));
    from = found.index + found[0].length;
  }
  shown.append(text.slice(from));
  return shown;
}

/** A text shortened to one line, for summaries and lists. */
export function shorten(text, most) {
  const line = String(text).slice(0, most * 4).replace(HIDDEN, " ").replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most)}…` : line;
}

/** The element with an id, which must exist. */
export function byId(id) {
  return document.getElementById(id);
}
