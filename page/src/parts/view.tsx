// The frame of a view: its title, its actions, and the states of what it reads.
import type { ComponentChildren } from "preact";
import { may } from "../core/gateway";
import type { Resource } from "../core/resource";
import type { Scope } from "../generated/wire";
import { ErrorCard, NoRight, Skeleton } from "./states";

interface ViewProps {
  title: string;
  about?: string;
  actions?: ComponentChildren;
  needs?: Scope;
  wide?: boolean;
  children: ComponentChildren;
}

export function View({ title, about, actions, needs, wide, children }: ViewProps) {
  return (
    <div class={`view ${wide ? "wide-view" : ""}`}>
      <header class="view-head">
        <div>
          <h1>{title}</h1>
          {about && <p class="faint">{about}</p>}
        </div>
        {actions && <div class="view-actions">{actions}</div>}
      </header>
      {needs && !may(needs) ? <NoRight scope={needs} /> : children}
    </div>
  );
}

/** Shows what was read, or why nothing is there. */
export function Loaded<T>({ from, children }: { from: Resource<T>; children: (data: T) => ComponentChildren }) {
  return (
    <>
      {from.problem && <ErrorCard problem={from.problem} retry={() => void from.reload()} />}
      {from.data === null ? !from.problem && <Skeleton /> : children(from.data)}
    </>
  );
}
