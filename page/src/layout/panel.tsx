// The panel on the right: one detail, as wide as the person wants; a sheet on a phone.
import { useEffect, useRef } from "preact/hooks";
import { closePanel, panel } from "../core/panel";
import { panelWidth } from "../core/preferences";
import { IconButton } from "../parts/button";

const LEAST = 320;
const MOST = 720;

export function Panel() {
  const content = panel.value;
  const root = useRef<HTMLElement>(null);
  useEffect(() => {
    if (content) root.current?.focus();
  }, [content]);
  if (!content) return null;
  const resize = (width: number) => {
    panelWidth.value = Math.round(Math.max(LEAST, Math.min(MOST, width)));
  };
  const drag = (event: PointerEvent) => {
    const handle = event.currentTarget as HTMLElement;
    handle.setPointerCapture(event.pointerId);
    const move = (moved: PointerEvent) => resize(window.innerWidth - moved.clientX);
    handle.addEventListener("pointermove", move);
    handle.addEventListener("lostpointercapture", () => handle.removeEventListener("pointermove", move), { once: true });
  };
  return (
    <aside
      id="panel"
      ref={root}
      tabindex={-1}
      aria-label={content.title}
      style={{ "--panel-width": `${panelWidth.value}px` }}
    >
      <div
        class="panel-handle"
        role="separator"
        aria-orientation="vertical"
        aria-label="Width of the panel"
        aria-valuemin={LEAST}
        aria-valuemax={MOST}
        aria-valuenow={panelWidth.value}
        tabindex={0}
        onPointerDown={drag}
        onKeyDown={(event) => {
          if (event.key === "ArrowLeft") resize(panelWidth.value + 24);
          if (event.key === "ArrowRight") resize(panelWidth.value - 24);
        }}
      />
      <header class="panel-head">
        <h2>{content.title}</h2>
        <IconButton icon="x" label="Close the panel" onClick={closePanel} />
      </header>
      <div class="panel-body">{content.body()}</div>
    </aside>
  );
}
