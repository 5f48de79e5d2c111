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
  /** A way back, above the title. */
  before?: ComponentChildren;
  /** A picture beside the title. */
  mark?: ComponentChildren;
  children: ComponentChildren;
}

export function View({ title, about, actions, needs, wide, before, mark, children }: ViewProps) {
  return (
    <div class={`view ${wide ? "wide-view" : ""}`}>
      {before}
      <header class="view-head">
        <div class="view-title">
          {mark}
          <div>
            <h1>
              <bdi>{title}</bdi>
            </h1>
            {about && <p class="faint">{about}</p>}
          </div>
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
