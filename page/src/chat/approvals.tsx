// Approval requests. They are shown in a separate area that no answer or tool can write to, so that text in the
// conversation cannot imitate a request.
import { useState } from "preact/hooks";
import { call } from "../core/gateway";
import { addressOf } from "../core/router";
import { approvals, nameOfSession } from "../core/stores";
import { reveal, shorten } from "../core/text";
import { clockTime } from "../core/time";
import type { Pending, Verdict } from "../generated/wire";
import { Icon } from "../parts/icon";

const VERDICTS: readonly [Verdict, string][] = [
  ["allow-once", "Allow once"],
  ["allow-always", "Always allow"],
  ["deny", "Deny"],
];

/** Requests that are questions of the agent, not permissions: the labels of their answers. */
const ANSWERS: Record<string, readonly [Verdict, string][]> = {
  ui_confirm: [
    ["allow-once", "Yes"],
    ["deny", "No"],
  ],
  ui_prompt: [
    ["allow-once", "Answer"],
    ["deny", "Do not answer"],
  ],
};
const MAX_ANSWER = 400;
const DANGEROUS = /^(Deletes|Changes outside|Sends|Secrets|Danger|Warning)\b|pipe|unconfined|outside|secret/i;
/** Commands that delete, overwrite or run what they load. This only marks the card; the gateway decides what asks. */
const DANGEROUS_COMMAND =
  /(^|[;&|(\s])(rm|rmdir|shred|dd|mkfs[.\w]*|truncate|sudo)\s|-delete\b|--force\b|\|\s*(sudo\s+)?(ba|z|da|k)?sh\b|\bdrop\s+table\b/i;
/** What can do harm comes first. */
const ORDER = ["Secrets", "Deletes", "Changes outside", "Changes", "Sends", "Needs", "Network", "Address", "Reads", "Runs"];

/** The lines of an explanation by their labels, the most dangerous first; lines without a label come before. */
export function explained(lines: readonly string[]): [label: string, texts: string[]][] {
  const found = new Map<string, string[]>();
  for (const line of lines) {
    const [, label = "", text = line] = /^([A-Z][a-z]+(?: [a-z]+)?): (.*)$/s.exec(line) ?? [];
    found.set(label, [...(found.get(label) ?? []), text]);
  }
  const rank = (label: string) => (ORDER.includes(label) ? ORDER.indexOf(label) : label ? ORDER.length : -1);
  return [...found].sort(([a], [b]) => rank(a) - rank(b));
}

export function ApprovalArea({ sessionKey }: { sessionKey: string | null }) {
  const pending = approvals.value;
  return (
    <section id="approvals" aria-label="Approval requests" hidden={!pending.length}>
      {pending.map((each) =>
        each.request.sessionKey === sessionKey ? (
          <ApprovalCard key={each.request.id} pending={each} isElsewhere={false} />
        ) : (
          <ApprovalElsewhere key={each.request.id} pending={each} />
        ),
      )}
    </section>
  );
}

/** A request of another conversation takes one line until it is opened. */
function ApprovalElsewhere({ pending }: { pending: Pending }) {
  const [isOpen, setOpen] = useState(false);
  if (isOpen) return <ApprovalCard pending={pending} isElsewhere />;
  const { request } = pending;
  return (
    <div class="approval-line">
      <Icon name="shield" />
      <p>
        <a href={addressOf("chat", request.sessionKey)}>
          <bdi>{nameOfSession(request.sessionKey)}</bdi>
        </a>{" "}
        asks: {reveal(shorten(request.title, 160))}
      </p>
      <button type="button" class="button" onClick={() => setOpen(true)}>
        Review
      </button>
    </div>
  );
}

export function ApprovalCard({ pending: { request, expiresAt }, isElsewhere }: { pending: Pending; isElsewhere: boolean }) {
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [words, setWords] = useState("");
  const [isArmed, setArmed] = useState(false);
  const question = ANSWERS[request.tool];
  const offered = question ?? VERDICTS.filter(([verdict]) => verdict !== "allow-always" || request.remember.length);
  const isDangerous =
    !question &&
    ([request.title, ...request.explanation].some((line) => DANGEROUS.test(line)) ||
      (/^(exec|process|bash|shell)/.test(request.tool) && DANGEROUS_COMMAND.test(request.detail)));
  const decide = async (verdict: Verdict) => {
    const isTouch = matchMedia("(pointer: coarse)").matches;
    if (isDangerous && isTouch && verdict !== "deny" && !isArmed) {
      setArmed(true);
      return;
    }
    setBusy(true);
    setProblem("");
    const reason = question && verdict === "deny" ? "" : words.trim();
    try {
      await call("approvals.resolve", { id: request.id, verdict, reason, binding: request.binding });
      const hadFocus = document.activeElement?.closest(".approval") || document.activeElement === document.body;
      approvals.value = approvals.value.filter((each) => each.request.id !== request.id);
      if (hadFocus) document.getElementById("message")?.focus();
    } catch (error) {
      setProblem((error as Error).message);
      setBusy(false);
    }
  };
  const pressed = (event: KeyboardEvent) => {
    if ((event.target as HTMLElement).matches("input, textarea") || event.ctrlKey || event.metaKey || question) return;
    if (event.key === "a" || event.key === "A") void decide("allow-once");
    if (event.key === "d" || event.key === "D") void decide("deny");
  };
  const id = `title-${request.id}`;
  return (
    <div
      class={`approval ${isDangerous ? "dangerous" : ""}`}
      role="group"
      aria-labelledby={id}
      tabindex={-1}
      onKeyDown={pressed}
    >
      <header>
        <Icon name={question ? "message-square" : isDangerous ? "shield-alert" : "shield"} size={18} />
        <h2 id={id}>{reveal(request.title)}</h2>
        <span class="faint">
          {shorten(request.tool, 60)} · denied if not answered by {clockTime(expiresAt)}
        </span>
      </header>
      {isElsewhere && (
        <p class="faint">
          In{" "}
          <a href={addressOf("chat", request.sessionKey)}>
            <bdi>{nameOfSession(request.sessionKey)}</bdi>
          </a>
        </p>
      )}
      <pre tabindex={0} role="group" aria-label="Exact request">
        {reveal(request.detail)}
      </pre>
      {request.explanation.length > 0 && (
        <dl class="explanation">
          {explained(request.explanation).map(([label, texts]) => (
            <div key={label}>
              <dt>{label || "Why"}</dt>
              {texts.map((text) => (
                <dd key={text}>{reveal(text)}</dd>
              ))}
            </div>
          ))}
        </dl>
      )}
      {request.remember.length > 0 && (
        <p class="faint remembered">
          “Always” would allow exactly:{" "}
          {request.remember.map((pattern) => (
            <code>{reveal(pattern.map(quoted).join(" "))}</code>
          ))}
        </p>
      )}
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      <div class="verdicts">
        {request.tool === "ui_prompt" ? (
          <input
            maxlength={MAX_ANSWER}
            aria-label="Your answer"
            value={words}
            onInput={(event) => setWords(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && !event.isComposing) void decide("allow-once");
            }}
          />
        ) : null}
        {offered.map(([verdict, text]) => (
          <button
            key={verdict}
            type="button"
            class={`button ${verdict === "allow-once" ? "primary" : verdict === "deny" ? "danger-quiet" : ""}`}
            disabled={isBusy}
            onClick={() => decide(verdict)}
          >
            {isArmed && verdict !== "deny" ? `Really: ${text.toLowerCase()}` : text}
          </button>
        ))}
        {!question && (
          <input
            class="approval-word"
            maxlength={MAX_ANSWER}
            aria-label="A word to the agent"
            placeholder="A word to the agent (optional)"
            value={words}
            onInput={(event) => setWords(event.currentTarget.value)}
          />
        )}
      </div>
    </div>
  );
}

function quoted(word: string): string {
  return /^[\w@%+=:,./*-]+$/.test(word) ? word : JSON.stringify(word);
}
