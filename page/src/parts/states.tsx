// What a view shows while it has nothing else to show.
import type { ComponentChildren } from "preact";
import type { Scope } from "../generated/wire";
import type { IconName } from "../generated/icons";
import { Button } from "./button";
import { Icon } from "./icon";

export function Skeleton({ lines = 4 }: { lines?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, line) => (
        <div key={line} class="skeleton-line" />
      ))}
    </div>
  );
}

interface EmptyProps {
  icon: IconName;
  title: string;
  children?: ComponentChildren;
  action?: ComponentChildren;
}

/** Says what the place is for and offers the first action. */
export function EmptyState({ icon, title, children, action }: EmptyProps) {
  return (
    <div class="empty-state">
      <span class="empty-icon">
        <Icon name={icon} size={24} />
      </span>
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {action}
    </div>
  );
}

/** What happened, and a way to try it again. */
export function ErrorCard({ problem, retry }: { problem: string; retry?: () => void }) {
  return (
    <div class="error-card" role="alert">
      <Icon name="circle-alert" size={20} />
      <div>
        <p>{problem}</p>
        {retry && (
          <Button icon="refresh-cw" onClick={retry}>
            Try again
          </Button>
        )}
      </div>
    </div>
  );
}

export function NoRight({ scope }: { scope: Scope }) {
  return (
    <EmptyState icon="lock" title="This device may not see this">
      It needs the right “{scope}”. The owner can grant it by pairing the device again:{" "}
      <code>retinue gateway pair --scope {scope}</code>
    </EmptyState>
  );
}
