import { type ComponentChildren, Fragment } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { IconName } from "../generated/icons";
import { Icon } from "./icon";

export interface MenuItem {
  icon?: IconName;
  text: string;
  hint?: string;
  isDanger?: boolean;
  isChosen?: boolean;
  /** A title above this item. */
  heading?: string;
  act: () => void;
}

interface MenuProps {
  label: string;
  children: ComponentChildren;
  items: () => MenuItem[];
  class?: string;
  side?: "left" | "right";
  up?: boolean;
}

/** A button that opens a list of actions. Arrows move, Escape closes, the focus returns to the button. */
export function Menu({ label, children, items, class: kind = "icon-button", side = "right", up }: MenuProps) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = (returns = true) => {
    setOpen(false);
    if (returns) button.current?.focus();
  };
  useEffect(() => {
    if (!isOpen) return undefined;
    root.current?.querySelector<HTMLElement>('[role="menuitem"]')?.focus();
    const outside = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) close(false);
    };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [isOpen]);
  const pressed = (event: KeyboardEvent) => {
    if (!isOpen) return;
    const all = [...root.current!.querySelectorAll<HTMLElement>('[role="menuitem"]')];
    const at = all.indexOf(document.activeElement as HTMLElement);
    if (event.key === "Escape" || event.key === "Tab") close(event.key === "Escape");
    else if (event.key === "ArrowDown") all[(at + 1) % all.length]?.focus();
    else if (event.key === "ArrowUp") all[(at - 1 + all.length) % all.length]?.focus();
    else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="menu" ref={root} onKeyDown={pressed}>
      <button
        ref={button}
        type="button"
        class={kind}
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >
        {children}
      </button>
      {isOpen && (
        <div class={`menu-list ${side} ${up ? "up" : ""}`} role="menu" aria-label={label}>
          {items().map((item) => (
            <Fragment key={item.text}>
              {item.heading && (
                <div class="menu-heading" role="presentation">
                  {item.heading}
                </div>
              )}
              <button
                type="button"
                role="menuitem"
                tabindex={-1}
                class={item.isDanger ? "danger" : ""}
                onClick={() => {
                  close();
                  item.act();
                }}
              >
                {item.icon && <Icon name={item.icon} />}
                <span class="menu-text">
                  {item.text}
                  {item.hint && <span class="faint">{item.hint}</span>}
                </span>
                {item.isChosen && <Icon name="check" />}
              </button>
            </Fragment>
          ))}
        </div>
      )}
    </div>
  );
}
