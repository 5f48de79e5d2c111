// Short messages about what was just done; they leave by themselves and can offer to undo it.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { IconName } from "../generated/icons";
import { IconButton } from "./button";
import { Icon } from "./icon";

const SHOWN_MS = 6_000;
const MAX_SHOWN = 3;

interface Toast {
  id: number;
  text: string;
  icon: IconName;
  undo?: () => void;
}

const toasts = signal<Toast[]>([]);
let last = 0;

/** Say that something was done. */
export function toast(text: string, undo?: () => void, icon: IconName = "check"): void {
  const fresh = undo ? { id: ++last, text, icon, undo } : { id: ++last, text, icon };
  toasts.value = [...toasts.value, fresh].slice(-MAX_SHOWN);
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

/** The place where they appear; a screen reader reads them out. */
export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite" aria-label="Done">
      {toasts.value.map((each) => (
        <ToastView key={each.id} {...each} />
      ))}
    </div>
  );
}

function ToastView({ id, text, icon, undo }: Toast) {
  useEffect(() => {
    const timer = setTimeout(() => dismiss(id), SHOWN_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class="toast">
      <Icon name={icon} />
      <span>
        <bdi>{text}</bdi>
      </span>
      {undo && (
        <button
          type="button"
          class="link"
          onClick={() => {
            dismiss(id);
            undo();
          }}
        >
          Undo
        </button>
      )}
      <IconButton icon="x" label="Dismiss" class="small" onClick={() => dismiss(id)} />
    </div>
  );
}
