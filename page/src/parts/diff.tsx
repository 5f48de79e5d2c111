// The lines that differ between two texts.
import { reveal } from "../core/text";

const MAX_LINES = 2_000;

interface Line {
  mark: "+" | "-" | " ";
  text: string;
}

/** The lines of both texts in order; the longest common part is found only for texts of usual length. */
export function diffLines(before: string, after: string): Line[] {
  const old = before === "" ? [] : before.split("\n");
  const fresh = after === "" ? [] : after.split("\n");
  let head = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < fresh.length - head && old.at(-1 - tail) === fresh.at(-1 - tail)) tail += 1;
  const same = (text: string): Line => ({ mark: " ", text });
  const middle = between(old.slice(head, old.length - tail), fresh.slice(head, fresh.length - tail));
  return [...old.slice(0, head).map(same), ...middle, ...old.slice(old.length - tail).map(same)];
}

function between(old: string[], fresh: string[]): Line[] {
  const removed = (text: string): Line => ({ mark: "-", text });
  const added = (text: string): Line => ({ mark: "+", text });
  if (old.length * fresh.length > 250_000) return [...old.map(removed), ...fresh.map(added)];
  const width = fresh.length + 1;
  const common = new Uint32Array((old.length + 1) * width);
  for (let a = old.length - 1; a >= 0; a -= 1) {
    for (let b = fresh.length - 1; b >= 0; b -= 1) {
      const skip = Math.max(common[(a + 1) * width + b]!, common[a * width + b + 1]!);
      common[a * width + b] = old[a] === fresh[b] ? common[(a + 1) * width + b + 1]! + 1 : skip;
    }
  }
  const lines: Line[] = [];
  let [a, b] = [0, 0];
  while (a < old.length && b < fresh.length) {
    if (old[a] === fresh[b]) {
      lines.push({ mark: " ", text: old[a]! });
      a += 1;
      b += 1;
    } else if (common[(a + 1) * width + b]! >= common[a * width + b + 1]!) lines.push(removed(old[a++]!));
    else lines.push(added(fresh[b++]!));
  }
  return [...lines, ...old.slice(a).map(removed), ...fresh.slice(b).map(added)];
}

const KINDS = { "+": "added", "-": "removed", " ": "same" };

export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const lines = diffLines(before, after);
  const near = lines.map((_, at) => lines.slice(Math.max(0, at - 3), at + 4).some(({ mark }) => mark !== " "));
  return (
    <pre class="diff" tabindex={0} role="group" aria-label={label}>
      {lines.slice(0, MAX_LINES).map(({ mark, text }, at) => {
        if (!near[at]) return at === 0 || near[at - 1] ? <span class="diff-gap">…{"\n"}</span> : null;
        return (
          <span class={`diff-${KINDS[mark]}`}>
            {mark} {reveal(text)}
            {"\n"}
          </span>
        );
      })}
    </pre>
  );
}

/** A difference that the gateway made, line by line; names of files are headings. */
export function UnifiedDiff({ text, label }: { text: string; label: string }) {
  const kindOf = (line: string) =>
    /^(\+\+\+|---|@@)/.test(line) ? "gap" : line[0] === "+" ? "added" : line[0] === "-" ? "removed" : "same";
  return (
    <pre class="diff" tabindex={0} role="group" aria-label={label}>
      {text
        .split("\n")
        .slice(0, MAX_LINES)
        .map((line) => (
          <span class={`diff-${kindOf(line)}`}>
            {reveal(line)}
            {"\n"}
          </span>
        ))}
    </pre>
  );
}
