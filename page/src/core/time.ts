// Times for people, in their zone and format: relative under a day, absolute above.
import { signal } from "@preact/signals";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The present time, renewed every half minute, so that relative times stay true. */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, MINUTE / 2);

export function exactTime(when: string | number | Date): string {
  return new Date(when).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

export function clockTime(when: string | number | Date): string {
  return new Date(when).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

export function relativeTime(when: string | number | Date): string {
  const date = new Date(when);
  const gone = now.value - date.getTime();
  const size = Math.abs(gone);
  if (Number.isNaN(gone)) return "";
  if (size < MINUTE) return gone < -MINUTE / 2 ? "in a moment" : "just now";
  if (size < DAY) {
    const text = size < HOUR ? `${Math.round(size / MINUTE)} min` : `${Math.round(size / HOUR)} h`;
    return gone < 0 ? `in ${text}` : `${text} ago`;
  }
  const isThisYear = date.getFullYear() === new Date(now.value).getFullYear();
  const day = { month: "short", day: "numeric" } as const;
  return date.toLocaleDateString([], isThisYear ? day : { ...day, year: "numeric" });
}

/** As short as a list of names needs it: `12 min`, `5 h`, a date. */
export function briefTime(when: string): string {
  return relativeTime(when).replace(/ ago$/, "").replace("just now", "now");
}

export function duration(seconds: number): string {
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3_600)} h ${Math.round((seconds % 3_600) / 60)} min`;
}
