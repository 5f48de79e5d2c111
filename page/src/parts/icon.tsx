import { h } from "preact";
import { type IconName, ICONS } from "../generated/icons";

/** A picture beside a text or in a labelled button; it has no meaning of its own. */
export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  const shapes = ICONS[name] as readonly (readonly [string, Record<string, string>])[];
  return (
    <svg
      class="icon"
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      stroke-width="2"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      {shapes.map(([tag, attributes]) => h(tag, attributes))}
    </svg>
  );
}
