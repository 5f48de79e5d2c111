// The whole page: the sign-in, or the rail, one view and the panel.
import { effect } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ChatView } from "./chat/view";
import { thread } from "./chat/thread";
import { isOnline, stage, trouble } from "./core/gateway";
import { listenToKeys, showsHelp, showsPalette } from "./core/keyboard";
import { panel } from "./core/panel";
import { route } from "./core/router";
import { announcement, approvals, nameOfSession } from "./core/stores";
import { plural, shorten } from "./core/text";
import { drawerIsOpen } from "./layout/drawer";
import { KeyboardHelp } from "./layout/help";
import { Palette } from "./layout/palette";
import { Panel } from "./layout/panel";
import { Rail } from "./layout/rail";
import { SignInPage } from "./layout/sign_in";
import { railIsOpen } from "./core/preferences";
import { IconButton } from "./parts/button";
import { Questions } from "./parts/dialog";
import { Icon } from "./parts/icon";
import { Toasts } from "./parts/toast";
import { EmptyState, ErrorCard, Skeleton } from "./parts/states";
import { VIEWS } from "./views/registry";

listenToKeys();

effect(() => {
  const { name, emoji } = thread.identity.value;
  const waiting = approvals.value.length;
  document.title = `${waiting ? `(${waiting}) ` : ""}${`${emoji} ${shorten(name, 60)}`.trim()}`;
});

export function App() {
  switch (stage.value) {
    case "starting":
      return null;
    case "out":
    case "asking":
      return <SignInPage />;
    case "in":
      return <Shell />;
  }
}

function Shell() {
  const { view } = route.value;
  thread.drawn.value;
  return (
    <div
      id="shell"
      class={`shell ${railIsOpen.value ? "" : "rail-closed"} ${panel.value ? "with-panel" : ""} ${drawerIsOpen.value ? "drawer-open" : ""}`}
    >
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          (document.getElementById("message") ?? document.querySelector<HTMLElement>("main"))?.focus();
        }}
      >
        Skip to the content
      </a>
      <Rail />
      {drawerIsOpen.value && (
        <div class="drawer-shade" aria-hidden="true" onClick={() => (drawerIsOpen.value = false)} />
      )}
      <main id="main" tabindex={-1}>
        <TopBar />
        {view === "chat" ? <ChatView /> : <LazyView key={view} id={view} />}
      </main>
      <Panel />
      {showsPalette.value && <Palette />}
      {showsHelp.value && <KeyboardHelp />}
      <Questions />
      <Toasts />
      <p id="told" class="unseen" role="status" aria-live="polite">
        {announcement.value}
      </p>
    </div>
  );
}

/** What the person must know, and on a phone the button of the drawer. */
function TopBar() {
  const waiting = approvals.value.length;
  const unsent = thread.unsent.value;
  const key = thread.key.value;
  const name = VIEWS.find(({ id }) => id === route.value.view)?.title ?? (key ? nameOfSession(key) : "Retinue");
  return (
    <>
      <div class="top-bar">
        <IconButton
          id="menu"
          icon="menu"
          label={waiting ? `Menu, ${plural(waiting, "approval")} pending` : "Menu"}
          expanded={drawerIsOpen.value}
          controls="side"
          badge={waiting}
          onClick={() => (drawerIsOpen.value = true)}
        />
        <span class="top-title">
          <bdi>{name}</bdi>
        </span>
        <IconButton icon="search" label="Search and commands" onClick={() => (showsPalette.value = true)} />
      </div>
      <div id="state" class={isOnline.value ? "banner" : "banner offline"} role="status">
        {trouble.value && (
          <>
            <Icon name={isOnline.value ? "circle-alert" : "wifi-off"} />
            <span>
              {trouble.value}
              {!isOnline.value && unsent > 0 && ` ${plural(unsent, "message")} will be sent then.`}
            </span>
            {isOnline.value && <IconButton icon="x" label="Dismiss" class="small" onClick={() => (trouble.value = "")} />}
          </>
        )}
      </div>
    </>
  );
}

const loaded = new Map<string, ComponentType>();

function LazyView({ id }: { id: string }) {
  const entry = VIEWS.find((each) => each.id === id);
  const [View, setView] = useState<ComponentType | undefined>(() => loaded.get(id));
  const [problem, setProblem] = useState("");
  const load = () => {
    setProblem("");
    entry?.load().then(
      (module) => {
        loaded.set(id, module.default);
        setView(() => module.default);
      },
      () => setProblem("This part of the page could not be loaded. Reload the page if the gateway was updated."),
    );
  };
  useEffect(() => {
    if (!View) load();
    document.getElementById("main")?.focus({ preventScroll: true });
  }, []);
  if (!entry) {
    return (
      <EmptyState icon="circle-alert" title="There is no such page">
        <a href="#/chat">Go to the chat</a>
      </EmptyState>
    );
  }
  if (problem) return <ErrorCard problem={problem} retry={load} />;
  return View ? <View /> : <Skeleton />;
}
