// The chat: the conversation, what the owner must decide, and the message field.
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { may } from "../core/gateway";
import { agentOf } from "../core/stores";
import { plural } from "../core/text";
import { Avatar } from "../parts/bits";
import { Button } from "../parts/button";
import { Icon } from "../parts/icon";
import { ErrorCard, Skeleton } from "../parts/states";
import { ApprovalArea } from "./approvals";
import { Composer, focusComposer, suggested } from "./composer";
import type { Answer } from "./conversation";
import { ChatHead } from "./head";
import { type ItemActions, ItemView } from "./messages";
import { SetupCard, setup } from "./setup";
import { thread } from "./thread";

const NEAR_END = 120;

export function ChatView() {
  thread.drawn.value;
  const isSetup = Boolean(setup.value?.next && setup.value.offered);
  return (
    <div class="chat">
      <ChatHead />
      {isSetup ? <SetupCard /> : <Log />}
      <ApprovalArea sessionKey={thread.key.value} />
      <Composer />
    </div>
  );
}

const SUGGESTIONS = [
  ["What can you do here?", "What can you do for me here? Name five concrete things, short."],
  ["Look around", "Look at your workspace and tell me in five lines what is in it."],
  ["Plan something", "Help me plan something: ask me what it is about, then propose three next steps."],
  ["Remember a fact", "Please remember this about me: "],
] as const;

function Welcome() {
  const { name, emoji } = thread.identity.value;
  const agent = agentOf(thread.agentId.value);
  return (
    <div class="welcome">
      <Avatar name={name} emoji={emoji} size={56} />
      <h2>
        <bdi>{name}</bdi>
      </h2>
      <p class="faint">{agent?.vibe ? <bdi>{agent.vibe}</bdi> : "Ask something, hand over a task, or drop a file."}</p>
      {may("write") && (
        <div class="suggestions">
          {SUGGESTIONS.map(([title, text]) => (
            <button
              key={title}
              type="button"
              class="suggestion"
              onClick={() => {
                if (text.endsWith(" ")) suggested.value = text;
                else thread.send(text);
              }}
            >
              {title}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

/** The messages. New text scrolls only while the reader is at the end. */
function Log() {
  const root = useRef<HTMLElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const { items, earlier } = thread.conversation;
  const shown = items.value;
  const key = thread.key.value;
  const mayWrite = may("write");
  const actions = useMemo<ItemActions>(
    () => ({
      mayWrite,
      edit: (item) => {
        thread.edit(item);
        suggested.value = item.text;
      },
      retry: (answer) => retry(answer),
    }),
    [mayWrite],
  );
  const toEnd = () => {
    follows.current = true;
    const element = root.current;
    if (element) element.scrollTop = element.scrollHeight;
    thread.readsBack.value = false;
  };
  useLayoutEffect(toEnd, [key, thread.isLoading.value]);
  const last = shown.at(-1);
  useLayoutEffect(() => {
    if (last?.kind === "person" && last.own) toEnd();
  }, [last]);
  useEffect(() => {
    const element = root.current!;
    const watch = new ResizeObserver(() => {
      if (follows.current) toEnd();
    });
    watch.observe(inner.current!);
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  const lastTop = useRef(0);
  const scrolled = () => {
    if (!root.current) return; // the event of a view that was left meanwhile
    const { scrollHeight, scrollTop, clientHeight } = root.current;
    // A request for approval makes the log lower, and its end moves away although nobody scrolled.
    if (scrollHeight - scrollTop - clientHeight < NEAR_END) follows.current = true;
    else if (scrollTop < lastTop.current - 1) follows.current = false;
    lastTop.current = scrollTop;
    thread.readsBack.value = !follows.current;
  };
  const showEarlier = async () => {
    const element = root.current!;
    const below = element.scrollHeight - element.scrollTop;
    follows.current = false;
    await thread.showEarlier();
    requestAnimationFrame(() => {
      element.scrollTop = element.scrollHeight - below;
    });
  };
  const isRunning = thread.isRunning.value;
  return (
    <div class="log-frame">
      <section
        id="log"
        ref={root}
        role="log"
        aria-live="off"
        aria-label="Conversation"
        aria-busy={isRunning}
        tabindex={0}
        onScroll={scrolled}
        onClick={(event) => {
          if ((event.target as HTMLElement).closest("summary")) follows.current = false;
        }}
      >
        <div class="log-inner" ref={inner}>
          {thread.problem.value && <ErrorCard problem={thread.problem.value} retry={() => void thread.open(key)} />}
          {earlier.value > 0 && (
            <Button kind="quiet" icon="arrow-up" class="earlier" onClick={showEarlier}>
              Show earlier messages ({plural(earlier.value, "message")})
            </Button>
          )}
          {thread.isLoading.value && !shown.length && <Skeleton lines={6} />}
          {!thread.isLoading.value && !shown.some(({ kind }) => kind !== "note") && <Welcome />}
          {shown.map((item) => (
            <ItemView key={item.id} item={item} actions={actions} />
          ))}
          {isRunning && !thread.conversation.running.value && <span class="working" aria-hidden="true" />}
        </div>
      </section>
      {thread.readsBack.value && (
        <button type="button" class="to-end" aria-label="Scroll to the newest message" onClick={toEnd}>
          <Icon name="arrow-down" />
        </button>
      )}
    </div>
  );
}

/** Send the message before an answer again. */
function retry(answer: Answer): void {
  const items = thread.conversation.items.value;
  const before = items.slice(0, items.indexOf(answer)).findLast((item) => item.kind === "person");
  if (before?.kind === "person") thread.send(before.text);
  focusComposer();
}
