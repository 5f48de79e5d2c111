// Code with highlighted words and a button that copies it.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Icon } from "./icon";

const MAX_HIGHLIGHTED = 20_000;
const LINE_COMMENT: Record<string, string> = { py: "#", sh: "#", yaml: "#", toml: "#", sql: "--", lua: "--", c: "//" };
const FAMILY: Record<string, string> = {
  python: "py",
  rb: "py",
  ruby: "py",
  bash: "sh",
  shell: "sh",
  zsh: "sh",
  console: "sh",
  yml: "yaml",
  ini: "toml",
  dockerfile: "sh",
  makefile: "sh",
};
const WORDS = new Set(
  (
    "and as assert async await break case catch class const continue def default del do elif else enum except export " +
    "extends false finally fn for from func function global go if impl import in interface is lambda let match mod mut " +
    "new nil none not null of or package pass private pub public raise return select self static struct super switch " +
    "then this throw trait true try type typeof union use var void where while with yield esac fi done echo local"
  ).split(" "),
);

/** The parts of a source text: comments, strings, numbers and key words have a class of their own. */
export function highlight(text: string, language: string): ComponentChildren[] {
  if (!language || text.length > MAX_HIGHLIGHTED || /^(te?xt|plain|md|markdown|output)$/.test(language)) return [text];
  if (language === "diff" || language === "patch") return highlightDiff(text);
  const mark = LINE_COMMENT[FAMILY[language] ?? language] ?? "//";
  const comment = mark === "//" ? String.raw`\/\/[^\n]*|\/\*[\s\S]*?\*\/` : `${mark}[^\\n]*`;
  const string = String.raw`"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|` + "`(?:[^`\\\\]|\\\\.)*`";
  const scan = new RegExp(String.raw`(${comment})|(${string})|(\b\d[\w.]*\b)|([A-Za-z_]\w*)`, "g");
  const shown: ComponentChildren[] = [];
  let from = 0;
  for (const found of text.matchAll(scan)) {
    const [whole, isComment, isString, isNumber] = found;
    const isWord = !isComment && !isString && !isNumber;
    if (isWord && !WORDS.has(whole.toLowerCase())) continue;
    const kind = isComment ? "comment" : isString ? "string" : isNumber ? "number" : "word";
    shown.push(text.slice(from, found.index), <span class={`code-${kind}`}>{whole}</span>);
    from = found.index + whole.length;
  }
  shown.push(text.slice(from));
  return shown;
}

function highlightDiff(text: string): ComponentChildren[] {
  return text.split(/(?<=\n)/).map((line) => {
    const kind = /^(\+\+\+|---|@@|diff )/.test(line) ? "comment" : line[0] === "+" ? "added" : "removed";
    return /^[-+@d]/.test(line) ? <span class={`code-${kind}`}>{line}</span> : line;
  });
}

export function CodeBlock({ text, language }: { text: string; language: string }) {
  return (
    <div class="code-block">
      <pre tabindex={0} role="group" aria-label={language ? `Code, ${language}` : "Code"}>
        <code>{highlight(text, language.toLowerCase())}</code>
      </pre>
      <div class="code-actions">
        {language && <span aria-hidden="true">{language}</span>}
        <CopyButton text={text} label="Copy code" />
      </div>
    </div>
  );
}

export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await copyText(typeof text === "string" ? text : text());
    setDone(true);
    setTimeout(() => setDone(false), 1_500);
  };
  return (
    <button type="button" class="icon-button small" aria-label={isDone ? "Copied" : label} title={label} onClick={copy}>
      <Icon name={isDone ? "check" : "copy"} size={14} />
    </button>
  );
}

/** The clipboard needs a secure context; over plain HTTP in a home network the old way still works. */
async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
