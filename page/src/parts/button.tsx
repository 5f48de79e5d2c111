import type { ComponentChildren, TargetedMouseEvent } from "preact";
import { useState } from "preact/hooks";
import { attempting } from "../core/gateway";
import type { IconName } from "../generated/icons";
import { Icon } from "./icon";

interface ButtonProps {
  children: ComponentChildren;
  icon?: IconName;
  kind?: "primary" | "danger" | "danger-quiet" | "plain" | "quiet";
  type?: "button" | "submit";
  disabled?: boolean;
  title?: string;
  class?: string;
  autofocus?: boolean;
  /** What the button does; while a promise is pending, the button is disabled. Refusals are shown. */
  onClick?: (event: TargetedMouseEvent<HTMLButtonElement>) => void | Promise<unknown>;
}

export function Button({ children, icon, kind = "plain", type = "button", onClick, disabled, ...rest }: ButtonProps) {
  const [isBusy, setBusy] = useState(false);
  const click = async (event: TargetedMouseEvent<HTMLButtonElement>) => {
    const result = onClick?.(event);
    if (!(result instanceof Promise)) return;
    setBusy(true);
    await attempting(() => result);
    setBusy(false);
  };
  return (
    <button
      type={type}
      class={`button ${kind} ${rest.class ?? ""}`}
      disabled={disabled || isBusy}
      title={rest.title}
      autofocus={rest.autofocus}
      onClick={onClick && click}
    >
      {icon && <Icon name={icon} />}
      <span>{children}</span>
    </button>
  );
}

interface IconButtonProps {
  icon: IconName;
  label: string;
  onClick?: (event: TargetedMouseEvent<HTMLButtonElement>) => void;
  class?: string;
  id?: string;
  pressed?: boolean;
  expanded?: boolean;
  controls?: string;
  disabled?: boolean;
  type?: "button" | "submit";
  badge?: number;
}

export function IconButton({ icon, label, onClick, badge = 0, type = "button", ...rest }: IconButtonProps) {
  return (
    <button
      type={type}
      id={rest.id}
      class={`icon-button ${rest.class ?? ""}`}
      aria-label={label}
      title={label}
      aria-pressed={rest.pressed}
      aria-expanded={rest.expanded}
      aria-controls={rest.controls}
      disabled={rest.disabled}
      onClick={onClick}
    >
      <Icon name={icon} size={18} />
      {badge > 0 && <span class="count" data-count={badge} />}
    </button>
  );
}
