// Small things that carry one fact each.
import type { ComponentChildren } from "preact";
import { exactTime, now, relativeTime } from "../core/time";

export type Tone = "plain" | "ok" | "warn" | "danger" | "accent";

export function Badge({ tone = "plain", children }: { tone?: Tone; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** A point in time: relative under a day, exact on hover. */
export function Time({ when }: { when: string | number | null | undefined }) {
  now.value;
  if (when === null || when === undefined || when === "") return <span class="faint">–</span>;
  const date = new Date(when);
  if (Number.isNaN(date.getTime())) return <span class="faint">{String(when)}</span>;
  return (
    <time class="time" dateTime={date.toISOString()} title={exactTime(date)}>
      {relativeTime(date)}
    </time>
  );
}

interface MeterProps {
  label: string;
  value: number;
  max: number;
  text?: string;
  /** Whether a high share is a warning, as with a limit, or only a number. */
  isLimit?: boolean;
}

/** A share of a limit. */
export function Meter({ label, value, max, text, isLimit = true }: MeterProps) {
  const share = max > 0 ? Math.min(1, value / max) : 0;
  const tone = !isLimit ? "plain" : share > 0.9 ? "danger" : share > 0.7 ? "warn" : "ok";
  const percent = `${Math.round(share * 100)} %`;
  return (
    <span
      class={`meter ${tone}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(share * 100)}
      aria-valuetext={text ?? percent}
      title={`${label}: ${text ?? percent}`}
    >
      <span class="meter-text">{percent}</span>
      <span class="meter-bar" aria-hidden="true">
        <span style={{ width: `${share * 100}%` }} />
      </span>
    </span>
  );
}

interface AvatarProps {
  name: string;
  emoji?: string;
  size?: number;
  /** What a screen reader says; without it the name stands beside the avatar. */
  label?: string;
}

export function Avatar({ name, emoji = "", size = 28, label }: AvatarProps) {
  const hue = [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)!) % 360, 7);
  const style = { "--hue": String(hue), width: `${size}px`, height: `${size}px`, fontSize: `${size * 0.5}px` };
  return (
    <span
      class={`avatar ${emoji ? "with-emoji" : ""}`}
      style={style}
      aria-hidden={label ? undefined : "true"}
      role={label ? "img" : undefined}
      aria-label={label}
      title={label}
    >
      {emoji || [...name.trim()][0]?.toUpperCase() || "?"}
    </span>
  );
}

/** A number of tokens or bytes, short enough for a table. */
export function short(value: number): string {
  return new Intl.NumberFormat([], { notation: "compact", maximumFractionDigits: 1 }).format(value);
}

/** Costs in dollars: small ones need more digits. */
export function dollars(value: number): string {
  return `$${value.toFixed(value && value < 0.1 ? 4 : 2)}`;
}

export function Tabs({ label, tabs, current, onChange }: {
  label: string;
  tabs: readonly (readonly [id: string, text: ComponentChildren])[];
  current: string;
  onChange: (id: string) => void;
}) {
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const at = tabs.findIndex(([id]) => id === current);
    const next = tabs[(at + step + tabs.length) % tabs.length]![0];
    onChange(next);
    const list = event.currentTarget as HTMLElement;
    requestAnimationFrame(() => list.querySelector<HTMLElement>('[aria-selected="true"]')?.focus());
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map(([id, text]) => (
        <button
          key={id}
          type="button"
          role="tab"
          aria-selected={id === current}
          tabindex={id === current ? 0 : -1}
          onClick={() => onChange(id)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}
